import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceOutput;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.KafkaSourceBuilder;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.TopicPartition;
import org.apache.flink.util.Collector;

/**
 * Messages of a topic as pieces: bytes that hold many. No other form of a message exists between Kafka's client and
 * Python, so none has objects of its own in Flink.
 *
 * <p>A piece is a long m; of m messages, in the order in which they came, long offsets, int partitions and int lengths
 * (-1: the message has no value; -2 - n: it has none, and the n bytes of its key stand there), little-endian; and the
 * values, each followed by a line feed. So JSON is lines of text already, whichever messages it came in, and Python
 * never looks at a single one. MessageBatcher.java makes batches of pieces, which have the same form.
 *
 * <p>This file is compiled where the job is drawn, by the compiler that Flink has for generated code, which knows no
 * generics, and travels in a jar with the job.
 */
public class MessagePieces implements KafkaRecordDeserializationSchema {

    private static final int HEAD = 8, OF_MESSAGE = 16;

    /** Flink's source of a topic, whose records `Gathered` takes. `starts`, `ends` (null: none): offsets by partition. */
    public static KafkaSource source(String topic, Map properties, Map starts, Map ends) {
        Properties given = new Properties();
        given.putAll(properties);
        KafkaSourceBuilder builder = KafkaSource.builder();
        builder.setTopics(Collections.singletonList(topic));
        builder.setStartingOffsets(OffsetsInitializer.offsets(offsets(topic, starts)));
        if (ends != null) {
            builder.setBounded(OffsetsInitializer.offsets(offsets(topic, ends)));
        }
        builder.setProperties(given);
        builder.setDeserializer(new MessagePieces());
        return builder.build();
    }

    private static Map offsets(String topic, Map byPartition) {
        Map found = new HashMap();
        for (Iterator each = byPartition.entrySet().iterator(); each.hasNext();) {
            Map.Entry one = (Map.Entry) each.next();
            int partition = ((Number) one.getKey()).intValue();
            found.put(new TopicPartition(topic, partition), Long.valueOf(((Number) one.getValue()).longValue()));
        }
        return found;
    }

    /** Hands the record on as it is: where it goes is `Gathered`. */
    public void deserialize(ConsumerRecord record, Collector out) {
        out.collect(record);
    }

    public TypeInformation getProducedType() {
        return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
    }

    /** The records of a reader, until they are sent as one piece. */
    public static class Gathered implements ReaderOutput {

        private final int pieceBytes;
        private final int pieceMessages;
        private final boolean keyed;
        private byte[] values = new byte[1 << 16];
        private int used = 0;
        private long[] offsets = new long[1024];
        private int[] partitions = new int[1024];
        private int[] lengths = new int[1024];
        private int messages = 0;

        /** `keyed`: with the keys of messages without a value. */
        public Gathered(int pieceBytes, int pieceMessages, boolean keyed) {
            this.pieceBytes = pieceBytes;
            this.pieceMessages = pieceMessages;
            this.keyed = keyed;
        }

        /** Whether the piece has as much as one may have. */
        public boolean isFull() {
            return messages >= pieceMessages || HEAD + OF_MESSAGE * messages + used >= pieceBytes;
        }

        /** Sends what is there, if anything is. */
        public void send(ReaderOutput output) {
            if (messages > 0) {
                ByteBuffer piece = ByteBuffer.allocate(HEAD + OF_MESSAGE * messages + used);
                piece.order(ByteOrder.LITTLE_ENDIAN).putLong((long) messages);
                piece.asLongBuffer().put(offsets, 0, messages);
                piece.position(HEAD + 8 * messages);
                piece.asIntBuffer().put(partitions, 0, messages).put(lengths, 0, messages);
                piece.position(HEAD + OF_MESSAGE * messages);
                piece.put(values, 0, used);
                messages = 0;
                used = 0;
                output.collect(piece.array());
            }
        }

        public void collect(Object found, long timestamp) {
            collect(found);
        }

        public void collect(Object found) {
            ConsumerRecord record = (ConsumerRecord) found;
            if (messages == offsets.length) {
                offsets = Arrays.copyOf(offsets, 2 * messages);
                partitions = Arrays.copyOf(partitions, 2 * messages);
                lengths = Arrays.copyOf(lengths, 2 * messages);
            }
            byte[] value = (byte[]) record.value();
            int length = value == null ? -1 : value.length;
            if (value == null && keyed && record.key() != null) {
                value = (byte[]) record.key();
                length = -2 - value.length;
            }
            offsets[messages] = record.offset();
            partitions[messages] = record.partition();
            lengths[messages] = length;
            messages++;
            if (value != null) {
                int end = used + value.length + 1;
                if (end > values.length) {
                    values = Arrays.copyOf(values, Math.max(2 * values.length, end));
                }
                System.arraycopy(value, 0, values, used, value.length);
                values[end - 1] = '\n';
                used = end;
            }
        }

        public void emitWatermark(Watermark mark) {}

        public void markIdle() {}

        public void markActive() {}

        public SourceOutput createOutputForSplit(String split) {
            return this;
        }

        public void releaseOutputForSplit(String split) {}
    }
}

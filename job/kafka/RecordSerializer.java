import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.kafka.shaded.org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.header.Header;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.header.Headers;
import org.apache.flink.kafka.shaded.org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Makes Kafka records of those that RecordSplitter.java has cut. A record without a value is a tombstone; one with an
 * epoch has it in a header, in decimal; one with a value has the mark of its job in another. The producer chooses the
 * partition by the key.
 *
 * <p>This file is compiled where the job is drawn, by the compiler that Flink has for generated code, which knows no
 * generics, and travels in a jar with the job.
 */
public class RecordSerializer implements KafkaRecordSerializationSchema {

    private static final int HEAD = 16;

    private final String topic;
    private final String header;
    private final String jobHeader;
    private final byte[] mark;
    private final Object tokenUrl;
    private transient SameHeaders ofJob;

    /** `mark`: empty for none. `tokenUrl`: null, or a TokenUrl, which does its work when it arrives where records are written. */
    public RecordSerializer(String topic, String header, String jobHeader, String mark, Object tokenUrl) {
        this.topic = topic;
        this.header = header;
        this.jobHeader = jobHeader;
        this.mark = mark.getBytes(StandardCharsets.UTF_8);
        this.tokenUrl = tokenUrl;
    }

    public ProducerRecord serialize(
            Object element, KafkaRecordSerializationSchema.KafkaSinkContext context, Long timestamp) {
        byte[] record = (byte[]) element;
        ByteBuffer head = ByteBuffer.wrap(record).order(ByteOrder.LITTLE_ENDIAN);
        int keyEnd = HEAD + head.getInt(0);
        long epoch = head.getLong(8);
        byte[] key = Arrays.copyOfRange(record, HEAD, keyEnd);
        byte[] value = head.getInt(4) < 0 ? null : Arrays.copyOfRange(record, keyEnd, record.length);
        if (epoch < 0 && value != null) {
            return new OfJob(topic, key, value, ofJob());
        }
        ProducerRecord made = new ProducerRecord(topic, null, null, key, value);
        if (epoch >= 0) {
            made.headers().add(header, Long.toString(epoch).getBytes(StandardCharsets.US_ASCII));
        }
        if (value != null && mark.length > 0) {
            made.headers().add(jobHeader, mark);
        }
        return made;
    }

    private SameHeaders ofJob() {
        if (ofJob == null) {
            RecordHeaders made = new RecordHeaders();
            if (mark.length > 0) {
                made.add(jobHeader, mark);
            }
            ofJob = new SameHeaders(made);
        }
        return ofJob;
    }

    /** Headers that many records share. The producer asks each record for an array of its own, a twelfth of its time. */
    private static class SameHeaders extends RecordHeaders {

        private final Header[] all;

        SameHeaders(RecordHeaders of) {
            super(of);
            all = of.toArray();
            setReadOnly();
        }

        public Header[] toArray() {
            return all;
        }
    }

    /** A record with a value, whose headers are those of all of them. */
    private static class OfJob extends ProducerRecord {

        private final SameHeaders all;

        OfJob(String topic, byte[] key, byte[] value, SameHeaders all) {
            super(topic, key, value);
            this.all = all;
        }

        public Headers headers() {
            return all;
        }
    }
}

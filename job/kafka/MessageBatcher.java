import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;

/**
 * Joins pieces of a topic's messages to batches, which have the same form (see MessagePieces.java), so that Python is
 * called once for many messages. A piece that is a whole batch goes on as it is.
 *
 * <p>What waits when a checkpoint begins is sent before its barrier, so nothing here is ever part of a checkpoint, and
 * nothing that the source's offsets have passed is lost. No operator in Python can do that: none is told of a barrier.
 *
 * <p>This file is compiled where it runs, by the compiler that Flink has for generated code, which knows no generics.
 */
public class MessageBatcher extends AbstractStreamOperator
        implements OneInputStreamOperator, ProcessingTimeCallback {

    private static final int HEAD = 8;

    private final int batchBytes;
    private final int batchMessages;
    private final long lingerMs;
    private final ArrayList pieces = new ArrayList();
    private int messages = 0;
    private int size = HEAD; // of the batch of all pieces
    private boolean timerIsSet = false;
    private long sentNs;

    public MessageBatcher(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock) {
        batchBytes = ((Number) references[0]).intValue();
        batchMessages = ((Number) references[1]).intValue();
        lingerMs = ((Number) references[2]).longValue();
        sentNs = System.nanoTime() - lingerMs * 1000000L;
        setProcessingTimeService(clock);
        setup(task, config, output);
    }

    /** Takes a piece; sends the batch when it is full, or when the last one was sent long enough ago. */
    public void processElement(StreamRecord element) throws Exception {
        byte[] piece = (byte[]) element.getValue();
        pieces.add(piece);
        messages += messagesIn(piece);
        size += piece.length - HEAD;
        if (messages >= batchMessages || size >= batchBytes || toWaitMs() <= 0) {
            send();
        } else {
            wake();
        }
    }

    private static int messagesIn(byte[] piece) {
        return (int) ByteBuffer.wrap(piece).order(ByteOrder.LITTLE_ENDIAN).getLong(0);
    }

    private long toWaitMs() {
        return lingerMs - (System.nanoTime() - sentNs) / 1000000L;
    }

    private void wake() {
        if (!timerIsSet) {
            ProcessingTimeService clock = getProcessingTimeService();
            clock.registerTimer(clock.getCurrentProcessingTime() + Math.max(1L, toWaitMs()), this);
            timerIsSet = true;
        }
    }

    public void onProcessingTime(long time) throws Exception {
        timerIsSet = false;
        if (messages > 0 && toWaitMs() > 0) {
            wake(); // a full batch was sent meanwhile
        } else {
            send();
        }
    }

    public void prepareSnapshotPreBarrier(long checkpoint) throws Exception {
        super.prepareSnapshotPreBarrier(checkpoint);
        send();
    }

    /** Sends what came before the mark; the one at the end of a bounded topic is what ends the stream. */
    public void processWatermark(Watermark mark) throws Exception {
        send();
        super.processWatermark(mark);
    }

    private void send() {
        if (messages > 0) {
            byte[] batch = pieces.size() == 1 ? (byte[]) pieces.get(0) : joined();
            pieces.clear();
            messages = 0;
            size = HEAD;
            output.collect(new StreamRecord(batch));
            sentNs = System.nanoTime(); // after the batch was parsed, and however long that had to wait
        }
    }

    private byte[] joined() {
        byte[] batch = new byte[size];
        ByteBuffer.wrap(batch).order(ByteOrder.LITTLE_ENDIAN).putLong((long) messages);
        int offsets = HEAD, partitions = offsets + 8 * messages, lengths = partitions + 4 * messages;
        int values = lengths + 4 * messages;
        for (int k = 0; k < pieces.size(); k++) {
            byte[] piece = (byte[]) pieces.get(k);
            int m = messagesIn(piece), of = HEAD + 16 * m;
            System.arraycopy(piece, HEAD, batch, offsets, 8 * m);
            System.arraycopy(piece, HEAD + 8 * m, batch, partitions, 4 * m);
            System.arraycopy(piece, HEAD + 12 * m, batch, lengths, 4 * m);
            System.arraycopy(piece, of, batch, values, piece.length - of);
            offsets += 8 * m;
            partitions += 4 * m;
            lengths += 4 * m;
            values += piece.length - of;
        }
        return batch;
    }
}

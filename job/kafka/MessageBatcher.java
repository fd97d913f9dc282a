import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import org.apache.flink.api.common.operators.ProcessingTimeService.ProcessingTimeCallback;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Gathers the messages of a topic, so that Python is called once for many: Row(partition, offset, value) in,
 * Row(0, batch) out. A batch is messages one after the other, each as int partition, long offset, int length (-1: the
 * message has no value) and the value, big-endian.
 *
 * <p>What waits when a checkpoint begins is sent before its barrier, so nothing here is ever part of a checkpoint, and
 * nothing that the source's offsets have passed is lost. No operator in Python can do that: none is told of a barrier.
 *
 * <p>This file is compiled where it runs, by the compiler that Flink has for generated code, which knows no generics.
 */
public class MessageBatcher extends AbstractStreamOperator
        implements OneInputStreamOperator, ProcessingTimeCallback {

    private final int batchBytes;
    private final int batchMessages;
    private final long lingerMs;
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream data = new DataOutputStream(bytes);
    private int messages = 0;
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

    /** Takes a message; sends the batch when it is full, or when the last one was sent long enough ago. */
    public void processElement(StreamRecord element) throws Exception {
        Row message = (Row) element.getValue();
        byte[] value = (byte[]) message.getField(2);
        data.writeInt(((Integer) message.getField(0)).intValue());
        data.writeLong(((Long) message.getField(1)).longValue());
        data.writeInt(value == null ? -1 : value.length);
        if (value != null) {
            data.write(value);
        }
        messages++;
        if (messages >= batchMessages || bytes.size() >= batchBytes || toWaitMs() <= 0) {
            send();
        } else {
            wake();
        }
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
            byte[] batch = bytes.toByteArray();
            bytes.reset();
            messages = 0;
            output.collect(new StreamRecord(Row.of(new Object[] {Integer.valueOf(0), batch})));
            sentNs = System.nanoTime(); // after the batch was parsed, and however long that had to wait
        }
    }
}

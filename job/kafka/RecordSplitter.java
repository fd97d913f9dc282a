import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.flink.streaming.api.graph.StreamConfig;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.apache.flink.streaming.runtime.tasks.StreamTask;
import org.apache.flink.types.Row;

/**
 * Cuts blocks of records: Row(block) in, the bytes of each record out. operators/record_blocks.py has the form of a
 * block; RecordSerializer.java reads a record.
 *
 * <p>This file is compiled where it runs, by the compiler that Flink has for generated code, which knows no generics.
 */
public class RecordSplitter extends AbstractStreamOperator implements OneInputStreamOperator {

    private static final int HEAD = 16;

    public RecordSplitter(
            Object[] references, StreamTask task, StreamConfig config, Output output, ProcessingTimeService clock) {
        setup(task, config, output);
    }

    /** Sends the records of a block, in order. */
    public void processElement(StreamRecord element) throws Exception {
        byte[] block = (byte[]) ((Row) element.getValue()).getField(0);
        ByteBuffer heads = ByteBuffer.wrap(block).order(ByteOrder.LITTLE_ENDIAN);
        int at = 0;
        while (at < block.length) {
            int end = at + HEAD + heads.getInt(at) + Math.max(heads.getInt(at + 4), 0);
            output.collect(new StreamRecord(Arrays.copyOfRange(block, at, end)));
            at = end;
        }
    }
}

import java.io.File;
import java.io.FileOutputStream;
import java.util.Iterator;
import java.util.Map;
import org.codehaus.janino.SimpleCompiler;

/** Compiles a source, the first argument, into class files below a folder, the second one. */
public class WriteClasses {
    public static void main(String[] arguments) throws Exception {
        Iterator classes = new SimpleCompiler(arguments[0]).getBytecodes().entrySet().iterator();
        while (classes.hasNext()) {
            Map.Entry one = (Map.Entry) classes.next();
            File file = new File(arguments[1], ((String) one.getKey()).replace('.', '/') + ".class");
            file.getParentFile().mkdirs();
            FileOutputStream out = new FileOutputStream(file);
            out.write((byte[]) one.getValue());
            out.close();
        }
    }
}

import java.io.BufferedReader;
import java.io.DataOutputStream;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.flink.api.python.shaded.py4j.CallbackClient;
import org.apache.flink.api.python.shaded.py4j.Gateway;
import org.apache.flink.api.python.shaded.py4j.GatewayServer;

/**
 * The Java end of PyFlink's gateway, with its token before the first connection is accepted.
 *
 * <p>PyFlink's own PythonGatewayServer listens without one. The token comes as the first line of standard input: a
 * command line is for every user of the machine to read. Where the port is stands in the file that the argument names.
 * The end of standard input ends the process.
 */
public class TokenGateway {
    private static final int LEAST_LENGTH = 32;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        String token = input.readLine();
        if (token == null || token.length() < LEAST_LENGTH) {
            System.err.println("TokenGateway: expected a token on standard input");
            System.exit(1);
        }
        InetAddress loopback = InetAddress.getByName("127.0.0.1");
        // Python says its port when it has connected (resetCallbackClient), which keeps the token; none is called before.
        CallbackClient callback = new CallbackClient(GatewayServer.DEFAULT_PYTHON_PORT, loopback, token);
        GatewayServer.GatewayServerBuilder builder = new GatewayServer.GatewayServerBuilder();
        builder.gateway(new Gateway(new ConcurrentHashMap(), callback));
        builder.javaAddress(loopback);
        builder.javaPort(0);
        builder.authToken(token);
        GatewayServer server = builder.build();
        server.start(true);
        write(server.getListeningPort(), new File(arguments[0]));
        while (input.read() != -1) {
            // it says nothing more; its end is what is waited for
        }
        System.exit(0);
    }

    private static void write(int port, File file) throws Exception {
        File partial = new File(file.getPath() + ".partial");
        DataOutputStream output = new DataOutputStream(new FileOutputStream(partial));
        output.writeInt(port);
        output.close();
        if (!partial.renameTo(file)) {
            System.err.println("TokenGateway: " + file + " can't be written");
            System.exit(1);
        }
    }
}

import java.io.Serializable;
import java.security.Provider;
import java.security.Security;
import java.util.Map;
import javax.security.auth.callback.CallbackHandler;
import javax.security.sasl.SaslClient;
import javax.security.sasl.SaslClientFactory;
import javax.security.sasl.SaslException;

/**
 * Lets Kafka's clients of a process log in by tokens, as soon as an object of this class arrives there.
 *
 * <p>Kafka's client asks no address for a token that is not in a property of Java, which otherwise each process of a
 * cluster would need at its start. The address is the user's own, of the job's configuration.
 *
 * <p>And Java has one list of logins for a process, where the first client enters its own classes. Flink loads the
 * client once more for the JobManager, for each job and after each restart, whose classes do not fit those. So this one
 * stands before it, and takes the classes of the client that asks.
 *
 * <p>This file is compiled where the job is drawn, by the compiler that Flink has for generated code, which knows no
 * generics, and travels in a jar with the job.
 */
public class TokenUrl implements Serializable {

    private static final String MECHANISM = "OAUTHBEARER";
    private static final String PROVIDER = "Freshet OAUTHBEARER";
    private static final String FACTORY =
            "org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslClient$OAuthBearerSaslClientFactory";

    private final String property;
    private final String url;

    public TokenUrl(String property, String url) {
        this.property = property;
        this.url = url;
    }

    /** Not private: Flink's compiler would make a static method of it, which Java's serialization does not find. */
    public Object readResolve() {
        synchronized (System.class) {
            String allowed = System.getProperty(property, "");
            if (!("," + allowed + ",").contains("," + url + ",")) {
                System.setProperty(property, allowed.length() == 0 ? url : allowed + "," + url);
            }
            Security.removeProvider(PROVIDER); // that of a job that has ended, whose classes are closed
            Security.insertProviderAt(new Logins(), 1);
        }
        return this;
    }

    /** The entry in Java's list. */
    public static class Logins extends Provider {

        public Logins() {
            super(PROVIDER, "1", "logins by tokens of Kafka's clients");
            put("SaslClientFactory." + MECHANISM, Factory.class.getName());
        }
    }

    /** Makes logins of the classes of the client that asks. */
    public static class Factory implements SaslClientFactory {

        public Factory() {}

        public SaslClient createSaslClient(
                String[] mechanisms, String id, String protocol, String server, Map properties, CallbackHandler handler)
                throws SaslException {
            SaslClientFactory own;
            try {
                Class found = Class.forName(FACTORY, true, handler.getClass().getClassLoader());
                own = (SaslClientFactory) found.getDeclaredConstructor(new Class[0]).newInstance(new Object[0]);
            } catch (ClassNotFoundException another) {
                return null; // no client of ours
            } catch (Exception error) {
                throw new SaslException("no login by tokens", error);
            }
            return own.createSaslClient(mechanisms, id, protocol, server, properties, handler);
        }

        public String[] getMechanismNames(Map properties) {
            return new String[] {MECHANISM};
        }
    }
}

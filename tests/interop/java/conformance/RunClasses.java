import java.util.HashSet;
import java.util.Set;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs classes of JUnit 4 and prints a line for each test: passed, failed, n/a or ignored, the class, the test, why. */
public final class RunClasses extends RunListener {
    private final Set<Description> told = new HashSet<>();

    public static void main(String[] names) throws Exception {
        JUnitCore core = new JUnitCore();
        core.addListener(new RunClasses());
        for (String name : names) {
            core.run(Class.forName(name));
            System.out.println("done\t" + name + "\t\t");
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // clients of the tests may be left
    }

    @Override
    public void testFailure(Failure failure) {
        tell("failed", failure.getDescription(), failure.getException().toString());
        failure.getException().printStackTrace();
    }

    @Override
    public void testAssumptionFailure(Failure failure) {
        tell("n/a", failure.getDescription(), failure.getMessage());
    }

    @Override
    public void testIgnored(Description test) {
        tell("ignored", test, "");
    }

    @Override
    public void testFinished(Description test) {
        tell("passed", test, "");
    }

    private void tell(String outcome, Description test, String why) {
        if (told.add(test)) {
            String line = why == null ? "" : why.replaceAll("\\s+", " ");
            String name = test.getMethodName() == null ? "" : test.getMethodName(); // of a whole class
            System.out.println(outcome + "\t" + test.getClassName() + "\t" + name + "\t" + line);
        }
    }
}

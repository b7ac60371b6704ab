import java.io.File;
import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A resource manager and node managers in one process; it ends with its standard input. */
public final class YarnCluster {
  /** Arguments: where the configuration is written once all run, and the number of node managers. */
  public static void main(String[] arguments) {
    try {
      run(new File(arguments[0]), Integer.parseInt(arguments[1]));
      System.exit(0);
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(File file, int nodes) throws Exception {
    MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, nodes, 1, 1);
    cluster.init(settings());
    cluster.start();
    while (!cluster.waitForNodeManagersToConnect(100)
        || cluster.getConfig().get(YarnConfiguration.RM_ADDRESS).endsWith(":0")) {
      Thread.sleep(100);
    }
    File whole = new File(file.getPath() + ".whole");
    try (OutputStream out = new FileOutputStream(whole)) {
      cluster.getConfig().writeXml(out);
    }
    if (!whole.renameTo(file)) {
      throw new IllegalStateException(file.getPath());
    }
    while (System.in.read() != -1) {}
    cluster.stop();
  }

  private static YarnConfiguration settings() {
    YarnConfiguration found = new YarnConfiguration();
    // The cluster of the tests has no capacity-scheduler.xml.
    String queue = "yarn.scheduler.capacity.root.default.";
    found.set("yarn.scheduler.capacity.root.queues", "default");
    found.set(queue + "capacity", "100");
    found.set(queue + "maximum-capacity", "100");
    found.set(queue + "user-limit-factor", "1");
    found.set(queue + "state", "RUNNING");
    found.set(queue + "acl_submit_applications", "*");
    // The driver and its successor have a master each.
    found.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1.0");
    found.set("yarn.scheduler.minimum-allocation-mb", "256");
    found.set("yarn.nodemanager.resource.memory-mb", "6144");
    found.set("yarn.nodemanager.vmem-check-enabled", "false");
    found.set("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", "100");
    found.set(YarnConfiguration.RM_BIND_HOST, "127.0.0.1");
    found.set(YarnConfiguration.NM_BIND_HOST, "127.0.0.1");
    found.set(YarnConfiguration.RM_WEBAPP_ADDRESS, "127.0.0.1:0");
    found.set(YarnConfiguration.NM_WEBAPP_ADDRESS, "127.0.0.1:0");
    found.setBoolean("yarn.is.minicluster", true);
    return found;
  }
}

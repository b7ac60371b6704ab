import java.io.File;
import java.nio.file.Files;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A name node and a data node in one process, with WebHDFS; it ends with its standard input. */
public final class HdfsCluster {
  /** Arguments: the folder of the data, the HTTP port of the name node, and a file that is there once both answer. */
  public static void main(String[] arguments) {
    try {
      run(new File(arguments[0]), Integer.parseInt(arguments[1]), new File(arguments[2]));
      System.exit(0);
    } catch (Throwable failure) {
      failure.printStackTrace();
      System.exit(1);
    }
  }

  private static void run(File data, int port, File ready) throws Exception {
    boolean isNew = !data.exists();
    HdfsConfiguration settings = new HdfsConfiguration();
    settings.set("dfs.replication", "1");
    settings.set("dfs.permissions.superusergroup", "tests");
    // After a kill: the lease of a dead writer, and how long the name node waits for its blocks.
    settings.set("dfs.namenode.safemode.extension", "0");
    settings.set("hadoop.caller.context.enabled", "false");
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(settings, data).numDataNodes(1).nameNodeHttpPort(port).format(isNew).build();
    cluster.waitActive();
    cluster.getFileSystem().setPermission(
        new org.apache.hadoop.fs.Path("/"), new org.apache.hadoop.fs.permission.FsPermission((short) 0777));
    Files.createFile(ready.toPath());
    while (System.in.read() != -1) {}
    cluster.shutdown();
  }
}

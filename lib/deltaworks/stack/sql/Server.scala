package org.apache.spark.sql.hive.thriftserver

import java.io.FileInputStream
import java.nio.file.{Files, Path => LocalPath}
import java.security.cert.CertificateFactory
import java.security.{KeyStore, MessageDigest}
import java.util.{Collections, List => JList, Map => JMap}

import scala.jdk.CollectionConverters._
import scala.util.Using

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.hive.conf.HiveConf
import org.apache.hadoop.hive.ql.security.authorization.BitSetCheckedAuthorizationProvider
import org.apache.hive.service.auth.PasswdAuthenticationProvider
import org.apache.hive.service.cli.{CLIService, GetInfoType, GetInfoValue, OperationHandle, SessionHandle}
import org.apache.hive.service.cli.thrift.ThriftBinaryCLIService
import org.apache.hive.service.rpc.thrift.TProtocolVersion
import org.apache.hive.service.server.HiveServer2
import javax.security.sasl.AuthenticationException

import deltaworks.sql.Tables
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.classic
import org.apache.spark.sql.hive.HiveUtils
import org.apache.spark.sql.hive.thriftserver.ReflectionUtils.setSuperField
import org.apache.spark.sql.hive.thriftserver.ui.{HiveThriftServer2EventManager, HiveThriftServer2Listener}
import org.apache.spark.status.ElementTrackingStore

/** Spark's Thrift server, in which a client can read the tables of a home and do nothing else.
  *
  * In this package since Spark lets nobody else assemble the server. What a statement may be: `deltaworks.sql.ReadOnly`.
  */
object Server {
  def main(arguments: Array[String]): Unit =
    try run(new Path(arguments(0)))
    catch {
      case error: Throwable =>
        error.printStackTrace()
        System.exit(1) // threads of Spark would keep the process
    }

  private def run(tables: Path): Unit = {
    Password.requireGiven()
    val spark = SparkSession.builder().getOrCreate().asInstanceOf[classic.SparkSession]
    val context = spark.sparkContext
    val hive = HiveUtils.newClientForExecution(context.conf, spark.sessionState.newHadoopConf()) // without keys
    Store.reach(context.hadoopConfiguration)
    Tables.open(spark, tables)
    spark.sql("SELECT 1").collect() // whoever can connect shall find a server that answers
    val server = new Server(spark)
    HiveThriftServer2.listener = new HiveThriftServer2Listener(
      context.statusStore.store.asInstanceOf[ElementTrackingStore], context.conf, Some(server), true)
    HiveThriftServer2.eventManager = new HiveThriftServer2EventManager(context)
    server.init(withoutMetastore(hive.conf))
    server.start()
  }

  /** Hive's sessions look for a metastore when they end, and go on without. Else each would make one, with a database. */
  private def withoutMetastore(conf: HiveConf): HiveConf = {
    val changed = new HiveConf(conf)
    changed.set("hive.metastore.uris", "thrift://127.0.0.1:1")
    changed.set("hive.metastore.connect.retries", "0")
    changed
  }
}

/** Hive's sessions ask who may do what, by default a metastore; here nobody needs to be asked. */
class NoRules extends BitSetCheckedAuthorizationProvider {
  override def init(conf: Configuration): Unit = ()
}

/** The server as `HiveThriftServer2` assembles it, with a service of our own. */
class Server(spark: SparkSession) extends HiveServer2 with ReflectedCompositeService {
  override def init(conf: HiveConf): Unit = {
    val service = new ReadOnlyService(this, spark)
    setSuperField(this, "cliService", service)
    addService(service)
    val wire = new ThriftBinaryCLIService(service)
    setSuperField(this, "thriftCLIService", wire)
    addService(wire)
    initCompositeService(conf)
  }

  override def start(): Unit = startCompositeService()
}

/** What `SparkSQLCLIService` does, without settings from clients: they would go around the check of statements. */
class ReadOnlyService(server: HiveServer2, spark: SparkSession) extends CLIService(server) with ReflectedCompositeService {
  private val none = Collections.emptyMap[String, String]()

  override def init(conf: HiveConf): Unit = {
    setSuperField(this, "hiveConf", conf)
    val sessions = new SparkSQLSessionManager(server, spark)
    setSuperField(this, "sessionManager", sessions)
    addService(sessions)
    initCompositeService(conf)
  }

  override def start(): Unit = startCompositeService()

  override def getInfo(session: SessionHandle, kind: GetInfoType): GetInfoValue = kind match {
    case GetInfoType.CLI_SERVER_NAME | GetInfoType.CLI_DBMS_NAME => new GetInfoValue("Spark SQL")
    case GetInfoType.CLI_DBMS_VER => new GetInfoValue(spark.version)
    case _ => super.getInfo(session, kind)
  }

  override def openSession(
      protocol: TProtocolVersion, user: String, password: String, address: String, settings: JMap[String, String]
  ): SessionHandle = super.openSession(protocol, user, password, address, none)

  override def openSessionWithImpersonation(
      protocol: TProtocolVersion, user: String, password: String, address: String, settings: JMap[String, String],
      token: String
  ): SessionHandle = super.openSession(protocol, user, password, address, none)

  override def openSession(
      protocol: TProtocolVersion, user: String, password: String, settings: JMap[String, String]
  ): SessionHandle = super.openSession(protocol, user, password, none)

  override def openSessionWithImpersonation(
      protocol: TProtocolVersion, user: String, password: String, settings: JMap[String, String], token: String
  ): SessionHandle = super.openSession(protocol, user, password, none)

  override def openSession(user: String, password: String, settings: JMap[String, String]): SessionHandle =
    super.openSession(user, password, none)

  override def openSessionWithImpersonation(
      user: String, password: String, settings: JMap[String, String], token: String
  ): SessionHandle = super.openSession(user, password, none)

  override def executeStatement(
      session: SessionHandle, text: String, settings: JMap[String, String], timeout: Long
  ): OperationHandle = super.executeStatement(session, text, none, timeout)

  override def executeStatement(
      session: SessionHandle, text: String, settings: JMap[String, String]
  ): OperationHandle = super.executeStatement(session, text, none)

  override def executeStatementAsync(
      session: SessionHandle, text: String, settings: JMap[String, String], timeout: Long
  ): OperationHandle = super.executeStatementAsync(session, text, none, timeout)

  override def executeStatementAsync(
      session: SessionHandle, text: String, settings: JMap[String, String]
  ): OperationHandle = super.executeStatementAsync(session, text, none)

  override def getTables(
      session: SessionHandle, catalog: String, schema: String, table: String, types: JList[String]
  ): OperationHandle = {
    Tables.describe(table)
    super.getTables(session, catalog, schema, table, types)
  }

  override def getColumns(
      session: SessionHandle, catalog: String, schema: String, table: String, column: String
  ): OperationHandle = {
    Tables.describe(table)
    super.getColumns(session, catalog, schema, table, column)
  }
}

/** How Hadoop reaches the object store of the tables; from the environment, since keys are among it. */
object Store {
  private val NoSecret = "certificates" // Java wants a password for a file with certificates, which are public

  def reach(hadoop: Configuration): Unit = {
    val settings = new ObjectMapper().readTree(Option(System.getenv("DELTAWORKS_SQL_HADOOP")).getOrElse("{}"))
    settings.fields.asScala.foreach(setting => hadoop.set(setting.getKey, setting.getValue.asText))
    Option(System.getenv("DELTAWORKS_SQL_AUTHORITIES")).foreach(trust)
  }

  /** Lets the JVM trust the authorities of a file in PEM, and no others. */
  private def trust(certificates: String): Unit = {
    val trusted = KeyStore.getInstance("PKCS12")
    trusted.load(null, null)
    val found = Using.resource(new FileInputStream(certificates)) {
      CertificateFactory.getInstance("X.509").generateCertificates(_).asScala.toSeq
    }
    for ((certificate, number) <- found.zipWithIndex) trusted.setCertificateEntry(number.toString, certificate)
    val file = LocalPath.of(System.getProperty("java.io.tmpdir"), "authorities.p12")
    Using.resource(Files.newOutputStream(file))(trusted.store(_, NoSecret.toCharArray))
    for ((name, value) <- Seq("" -> file.toString, "Type" -> "PKCS12", "Password" -> NoSecret))
      System.setProperty(s"javax.net.ssl.trustStore$name", value)
  }
}

/** User and password; from the environment, which no other user of the machine can read. */
object Password {
  private def given(name: String): String = Option(System.getenv(name)).getOrElse("")
  private val user = given("DELTAWORKS_SQL_USER")
  private val password = given("DELTAWORKS_SQL_PASSWORD")

  def requireGiven(): Unit = if (user.isEmpty || password.isEmpty) {
    System.err.println("DELTAWORKS_SQL_USER and DELTAWORKS_SQL_PASSWORD must be set: there is no access without them.")
    System.exit(78)
  }

  def isRight(name: String, word: String): Boolean =
    user.nonEmpty && password.nonEmpty && same(user, name) & same(password, word)

  private def same(expected: String, given: String): Boolean =
    MessageDigest.isEqual(expected.getBytes("UTF-8"), Option(given).getOrElse("").getBytes("UTF-8"))
}

class Password extends PasswdAuthenticationProvider {
  override def Authenticate(user: String, password: String): Unit =
    if (!Password.isRight(user, password)) throw new AuthenticationException("wrong user or password")
}

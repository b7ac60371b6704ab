package deltaworks.sql

import java.nio.file.attribute.BasicFileAttributes
import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.{Success, Try, Using}

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.fs.{Path => HadoopPath}
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.catalog.{CatalogStorageFormat, CatalogTable, CatalogTableType}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}
import org.apache.spark.sql.types.StructType

/** A table as readers see it.
  *
  * @param version
  *   that of the newest cut of its pipeline; None: no cut holds for it, so the latest one
  */
case class Table(name: String, path: Path, version: Option[Long])

/** The Delta tables of a home: those of a pipeline as of one batch, the others as they are now.
  *
  * What is there is read anew for each statement, so that new tables appear and new batches are seen.
  */
object Tables {
  private val Database = "default"
  private val QueryProperty = "deltaworks.query"
  private val Format = 1
  private val json = new ObjectMapper()
  @volatile private var spark: SparkSession = _
  @volatile private var root: Path = _

  /** Path, version and identity of a log -> the checkpoint that writes the table. */
  private val queries = new ConcurrentHashMap[(Path, Long, AnyRef), Option[String]]()

  def open(session: SparkSession, folder: Path): Unit = {
    spark = session
    root = folder
    register()
  }

  /** The folder of a table that is read; None: something else. */
  def nameOf(path: HadoopPath): Option[String] = {
    val folder = Path.of(path.toUri.getPath)
    Option.when(folder.getParent == root && isTable(folder))(folder.getFileName.toString)
  }

  /** All tables by name in lower case, and the catalog says the same. */
  def shown(): Map[String, Table] = synchronized {
    val cut = cuts()
    register().map { case (name, path) => name.toLowerCase -> Table(name, path, cut.get(name).flatMap(holds(path, _))) }
  }

  /** Lets the catalog say what the tables are whose names match a pattern of JDBC; null: all. */
  def describe(pattern: String): Unit = {
    val wanted = Option(pattern).filter(_.nonEmpty).map(asRegex)
    for (table <- shown().values if wanted.forall(table.name.toLowerCase.matches)) synchronized {
      val found = snapshot(table).metadata
      val known = catalog.getTableRawMetadata(identifier(table.name))
      val comment = Option(found.description)
      if (known.schema != found.schema || known.comment != comment) {
        catalog.dropTable(known.identifier, ignoreIfNotExists = true, purge = false)
        create(table.name, table.path, found.schema, comment)
      }
    }
  }

  /** Matches at least what a pattern means, in which a client may have escaped a `_`. */
  private def asRegex(pattern: String): String =
    pattern.toLowerCase.filterNot(_ == '\\').map {
      case '%' | '*' => ".*"
      case letter if letter.isLetterOrDigit => letter.toString
      case _ => "."
    }.mkString

  private def catalog = spark.sessionState.catalog

  private def identifier(name: String) = TableIdentifier(name, Some(Database))

  private def isTable(folder: Path): Boolean = Files.isDirectory(folder.resolve("_delta_log"))

  /** The tables below the root; those that are new are in the catalog after this, and those that are gone are not. */
  private def register(): Map[String, Path] = synchronized {
    val found: Map[String, Path] =
      if (!Files.isDirectory(root)) Map.empty
      else
        Using.resource(Files.list(root)) { folders =>
          folders.iterator.asScala.filter(isTable).map(folder => folder.getFileName.toString -> folder).toMap
        }
    val known = catalog.listTables(Database).map(_.table).toSet
    val there = found.keySet.map(_.toLowerCase)
    (known -- there).foreach(name => catalog.dropTable(identifier(name), ignoreIfNotExists = true, purge = false))
    for ((name, path) <- found if !known(name.toLowerCase)) create(name, path, new StructType(), None)
    found
  }

  private def create(name: String, path: Path, schema: StructType, comment: Option[String]): Unit = {
    val table = CatalogTable(
      identifier = identifier(name),
      tableType = CatalogTableType.EXTERNAL,
      storage = CatalogStorageFormat.empty.copy(locationUri = Some(path.toUri)),
      schema = schema,
      provider = Some("delta"),
      comment = comment
    )
    catalog.createTable(table, ignoreIfExists = true, validateLocation = false)
  }

  /** Table -> version and checkpoint, as the newest cuts say. */
  private def cuts(): Map[String, (Long, String)] = {
    val folder = root.resolve("_cuts")
    if (!Files.isDirectory(folder)) Map.empty
    else
      Using.resource(Files.list(folder)) { pipelines =>
        val read = pipelines.iterator.asScala.map(_.resolve("latest.json")).filter(Files.isRegularFile(_)).map(newest)
        read.toSeq.flatten.toMap
      }
  }

  private def newest(file: Path): Seq[(String, (Long, String))] =
    Try(json.readTree(Files.readAllBytes(file))) match {
      case Success(cut) if cut.path("format").asInt == Format =>
        val query = cut.path("query").asText
        cut.path("tables").fields.asScala.map(table => table.getKey -> (table.getValue.asLong, query)).toSeq
      case _ => Nil // it cannot be read, or another version of deltaworks wrote it
    }

  /** The version of a cut, unless the table was made anew since. */
  private def holds(path: Path, cut: (Long, String)): Option[Long] = {
    val (version, query) = cut
    val log = Files.readAttributes(path.resolve("_delta_log"), classOf[BasicFileAttributes])
    if (queries.size > 10000) queries.clear()
    val writer = queries.computeIfAbsent((path, version, (log.fileKey, log.creationTime)), _ => writerOf(path, version))
    Option.when(writer.contains(query))(version)
  }

  private def writerOf(path: Path, version: Long): Option[String] =
    Try(at(path, Some(version)).metadata.configuration.get(QueryProperty)).toOption.flatten

  private def snapshot(table: Table): Snapshot = at(table.path, table.version)

  private def at(path: Path, version: Option[Long]): Snapshot = {
    val log = DeltaLog.forTable(spark, new HadoopPath(path.toUri))
    val latest = log.update()
    version.filter(_ != latest.version).fold(latest)(log.getSnapshotAt(_))
  }
}

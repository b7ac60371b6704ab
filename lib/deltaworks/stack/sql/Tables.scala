package deltaworks.sql

import java.io.{FileNotFoundException, IOException}
import java.nio.file.attribute.BasicFileAttributes
import java.nio.file.{Files, Path => LocalPath}
import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try, Using}

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.hadoop.fs.{EtagSource, FileSystem, Path}
import org.apache.spark.sql.catalyst.TableIdentifier
import org.apache.spark.sql.catalyst.catalog.{CatalogStorageFormat, CatalogTable, CatalogTableType}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.util.FileNames
import org.apache.spark.sql.delta.{DeltaLog, Snapshot}
import org.apache.spark.sql.types.StructType

/** A table as readers see it.
  *
  * @param newest
  *   finds the version, which in a store takes requests: only those that a statement names are asked for it
  */
class Table(val name: String, val path: Path, newest: => Option[Long]) {

  /** That of the newest cut of its pipeline; None: no cut holds for it, so the latest one. */
  lazy val version: Option[Long] = newest
}

/** The Delta tables of a home: those of a pipeline as of one batch, the others as they are now.
  *
  * What is there is read anew for each statement, so that new tables appear and new batches are seen. Hadoop reads it,
  * on a disk and in an object store.
  */
object Tables {
  private val Database = "default"
  private val QueryProperty = "deltaworks.query"
  private val Format = 1
  private val PatienceNs = 10000000000L
  private val Cuts = "_cuts"

  /** Folders of deltaworks beside the tables. */
  private val Own = Set(Cuts, "_deltaworks", "_retained", "_trash")
  private val json = new ObjectMapper()
  @volatile private var spark: SparkSession = _
  @volatile private var files: FileSystem = _
  @volatile private var root: Path = _

  /** The tables that were there when it was looked last. */
  @volatile private var seen = Set.empty[Path]

  /** Path, version and identity of a log -> the checkpoint that writes the table. */
  private val queries = new ConcurrentHashMap[(Path, Long, AnyRef), Option[String]]()

  def open(session: SparkSession, folder: Path): Unit = {
    spark = session
    files = folder.getFileSystem(session.sessionState.newHadoopConf())
    root = qualified(folder)
    register(folders(root), all = true)
  }

  /** The name of a folder beside the tables; None: it is elsewhere. */
  def nameOf(path: Path): Option[String] = {
    val folder = qualified(path)
    Option.when(folder.getParent == root)(folder.getName)
  }

  /** All tables by name in lower case, and the catalog says the same.
    *
    * @param all
    *   looks whether each is still there. Else, in a store, one that is gone may be among them, since to look takes a
    *   request for each; whoever reads it is told that there is no table.
    */
  def shown(all: Boolean = true): Map[String, Table] = synchronized {
    val there = folders(root)
    val cut = cuts(there)
    register(there, all).map { case (name, path) =>
      name.toLowerCase -> new Table(name, path, cut.get(name).flatMap(holds(path, _)))
    }
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

  private def qualified(path: Path): Path = path.makeQualified(files.getUri, files.getWorkingDirectory)

  private def isLocal: Boolean = root.toUri.getScheme == "file"

  private def logOf(table: Path) = new Path(table, "_delta_log")

  /** A store may keep the folders of what is gone: there it needs something in it. */
  private def hasLog(table: Path): Boolean =
    if (isLocal) Files.isDirectory(LocalPath.of(logOf(table).toUri))
    else
      Try(files.listStatusIterator(logOf(table)).hasNext) match {
        case Success(any) => any
        case Failure(_: FileNotFoundException) => false
        case Failure(error) => throw error
      }

  /** The folders in a folder; none: it is not there. */
  private def folders(in: Path): Seq[Path] =
    Try(files.listStatus(in)) match {
      case Success(found) => found.toSeq.filter(_.isDirectory).map(_.getPath)
      case Failure(_: FileNotFoundException) => Nil
      case Failure(error) => throw error
    }

  /** The tables among folders; those that are new are in the catalog after this, and those that are gone are not. */
  private def register(there: Seq[Path], all: Boolean): Map[String, Path] = {
    val trusted = if (all || isLocal) Set.empty[Path] else seen
    val tables = there.filter(folder => !Own(folder.getName) && (trusted(folder) || hasLog(folder)))
    seen = tables.toSet
    val found = tables.map(folder => folder.getName -> folder).toMap
    val known = catalog.listTables(Database).map(_.table).toSet
    val gone = known -- found.keySet.map(_.toLowerCase)
    gone.foreach(name => catalog.dropTable(identifier(name), ignoreIfNotExists = true, purge = false))
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
  private def cuts(there: Seq[Path]): Map[String, (Long, String)] =
    there.filter(_.getName == Cuts).flatMap(folders).flatMap(each => newest(new Path(each, "latest.json"))).toMap

  private def newest(file: Path): Seq[(String, (Long, String))] =
    content(file, System.nanoTime + PatienceNs).map(bytes => Try(json.readTree(bytes))) match {
      case Some(Success(cut)) if cut.path("format").asInt == Format =>
        val query = cut.path("query").asText
        cut.path("tables").fields.asScala.map(table => table.getKey -> (table.getValue.asLong, query)).toSeq
      case _ => Nil // it is not there, cannot be read, or another version of deltaworks wrote it
    }

  /** What is in a file; None: it is not there.
    *
    * Hadoop fails if the file is replaced between its two requests, so it is read again, unless the failure has taken
    * long: then the store does not answer. That is no missing cut, without which tables would be read as they are now.
    */
  @tailrec private def content(file: Path, end: Long): Option[Array[Byte]] =
    Try(Using.resource(files.open(file))(_.readAllBytes())) match {
      case Success(bytes) => Some(bytes)
      case Failure(_: FileNotFoundException) => None
      case Failure(_: IOException) if System.nanoTime < end => content(file, end)
      case Failure(error) => throw error
    }

  /** The version of a cut, unless the table was made anew since. */
  private def holds(path: Path, cut: (Long, String)): Option[Long] = {
    val (version, query) = cut
    if (queries.size > 10000) queries.clear()
    val writer = identity(path, version).flatMap { log =>
      queries.computeIfAbsent((path, version, log), _ => writerOf(path, version))
    }
    Option.when(writer.contains(query))(version)
  }

  /** What the log of a table that was made anew does not share; None: the log has no such version.
    *
    * On a disk it is the folder. A store has no folders, only objects: there it is the content of the commit, which has
    * the time and random names of files in it, so another table never has it. One request tells its ETag.
    */
  private def identity(path: Path, version: Long): Option[AnyRef] =
    Try(files.getFileStatus(FileNames.unsafeDeltaFile(logOf(path), version))) match {
      case Success(commit: EtagSource) => Some(commit.getEtag)
      case Success(_) =>
        val log = Files.readAttributes(LocalPath.of(logOf(path).toUri), classOf[BasicFileAttributes])
        Some((log.fileKey, log.creationTime))
      case Failure(_: FileNotFoundException) => None
      case Failure(error) => throw error
    }

  private def writerOf(path: Path, version: Long): Option[String] =
    at(path, Some(version)).metadata.configuration.get(QueryProperty)

  private def snapshot(table: Table): Snapshot = at(table.path, table.version)

  private def at(path: Path, version: Option[Long]): Snapshot = {
    val log = DeltaLog.forTable(spark, path)
    val latest = log.update()
    version.filter(_ != latest.version).fold(latest)(log.getSnapshotAt(_))
  }
}

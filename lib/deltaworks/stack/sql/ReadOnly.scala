package deltaworks.sql

import scala.io.Source
import scala.util.Using

import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.catalyst.{FunctionIdentifier, TableIdentifier}
import org.apache.spark.sql.catalyst.analysis._
import org.apache.spark.sql.catalyst.expressions.{Expression, SubqueryExpression}
import org.apache.spark.sql.catalyst.parser.{ParameterContext, ParserInterface}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.delta.files.TahoeLogFileIndex
import org.apache.spark.sql.execution.command.ExplainCommand
import org.apache.spark.sql.execution.datasources.{HadoopFsRelation, LogicalRelation}
import org.apache.spark.sql.types.{DataType, StructType}

/** A statement that is not one of those that a reader may give. */
class RefusedException(message: String) extends RuntimeException(message)

/** Every statement of a client is parsed, checked, analyzed and checked again before anything of it runs. */
class ReadOnly extends (SparkSessionExtensions => Unit) {
  override def apply(extensions: SparkSessionExtensions): Unit =
    extensions.injectParser((session, parser) => new ReadOnlyParser(session.asInstanceOf[SparkSession], parser))
}

class ReadOnlyParser(session: SparkSession, parser: ParserInterface) extends ParserInterface {
  override def parsePlan(text: String): LogicalPlan = checked(parser.parsePlan(text))
  override def parsePlanWithParameters(text: String, parameters: ParameterContext): LogicalPlan =
    checked(parser.parsePlanWithParameters(text, parameters))
  override def parseQuery(text: String): LogicalPlan = checked(parser.parseQuery(text))
  override def parseExpression(text: String): Expression = parser.parseExpression(text)
  override def parseTableIdentifier(text: String): TableIdentifier = parser.parseTableIdentifier(text)
  override def parseFunctionIdentifier(text: String): FunctionIdentifier = parser.parseFunctionIdentifier(text)
  override def parseMultipartIdentifier(text: String): Seq[String] = parser.parseMultipartIdentifier(text)
  override def parseTableSchema(text: String): StructType = parser.parseTableSchema(text)
  override def parseDataType(text: String): DataType = parser.parseDataType(text)
  override def parseRoutineParam(text: String): StructType = parser.parseRoutineParam(text)

  private def checked(plan: LogicalPlan): LogicalPlan = {
    val tables = Tables.shown(all = Statement.isTold(plan))
    new Statement(tables)(plan) match {
      case explain: ExplainCommand => explain.copy(logicalPlan = analyzed(explain.logicalPlan, tables))
      case told if Statement.isTold(told) => told
      case query => analyzed(query, tables)
    }
  }

  /** The analyzer leaves an analyzed plan as it is, so what was checked is what runs. */
  private def analyzed(query: LogicalPlan, tables: Map[String, Table]): LogicalPlan = {
    val plan = session.sessionState.executePlan(query).analyzed
    new Analyzed(tables).check(plan)
    plan
  }
}

/** What a statement may consist of, by names: whatever is not here is refused. */
object Statement {
  val Nodes = Set(
    "Aggregate", "Distinct", "Except", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin",
    "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project", "Sample", "Sort", "SubqueryAlias", "Union",
    "UnresolvedHaving", "UnresolvedInlineTable", "UnresolvedPivot", "UnresolvedQualify",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "Unpivot", "WithWindowDefinition")
  val Told = Set(
    "CurrentNamespace", "DescribeColumn", "DescribeRelation", "SetCatalogAndNamespace", "ShowColumns", "ShowNamespaces",
    "ShowNamespacesCommand", "ShowTables", "ShowViews")
  val Database = "default"
  private val Catalog = "spark_catalog"

  /** Functions of Spark that compute from their arguments alone. */
  lazy val Functions: Set[String] =
    Using.resource(Source.fromInputStream(getClass.getResourceAsStream("/functions.txt"), "UTF-8")) {
      _.getLines().filterNot(line => line.isEmpty || line.startsWith("#")).flatMap(_.split(" ")).toSet
    }

  def isTold(plan: LogicalPlan): Boolean = Told(nameOf(plan))

  def nameOf(plan: AnyRef): String = plan.getClass.getSimpleName.stripSuffix("$")

  /** The name of a table, if the parts can mean one. */
  def tableOf(parts: Seq[String]): Option[String] = parts.map(_.toLowerCase) match {
    case Seq(name) => Some(name)
    case Seq(Database, name) => Some(name)
    case Seq(Catalog, Database, name) => Some(name)
    case _ => None
  }

  def isDatabase(parts: Seq[String]): Boolean = parts.map(_.toLowerCase) match {
    case Seq() | Seq(Database) | Seq(Catalog, Database) => true
    case _ => false
  }

  def refuse(what: String): Nothing =
    throw new RefusedException(s"This is not allowed: $what. The tables can be read, and nothing else.")
}

/** Checks a statement as it was parsed, and gives each table its version.
  *
  * @param tables
  *   by name in lower case
  */
class Statement(tables: Map[String, Table]) {
  import Statement._

  def apply(plan: LogicalPlan): LogicalPlan = plan match {
    case explain: ExplainCommand => explain.copy(logicalPlan = query(explain.logicalPlan, Set.empty))
    case told if isTold(told) =>
      told.children.foreach(target)
      told
    case other => query(other, Set.empty)
  }

  /** What SHOW, DESCRIBE and USE are about. */
  private def target(plan: LogicalPlan): Unit = plan match {
    case UnresolvedNamespace(parts, _) => if (!isDatabase(parts)) refuse(s"the schema ${parts.mkString(".")}")
    case table: UnresolvedTableOrView => known(table.multipartIdentifier)
    case table: UnresolvedTable => known(table.multipartIdentifier)
    case _ if nameOf(plan) == "CurrentNamespace" =>
    case _ => refuse(plan.nodeName)
  }

  private def query(plan: LogicalPlan, named: Set[String]): LogicalPlan = plan match {
    case UnresolvedRelation(Seq(name), _, false) if named(name.toLowerCase) => plan
    case UnresolvedRelation(parts, options, false) if options.isEmpty => pinned(known(parts))
    case UnresolvedRelation(parts, _, _) => refuse(s"options of ${parts.mkString(".")}")
    case w: UnresolvedWith =>
      var seen = named
      val relations = w.cteRelations.map { case (name, alias, depth) =>
        if (w.allowRecursion) seen += name.toLowerCase
        val done = query(alias, seen).asInstanceOf[SubqueryAlias]
        seen += name.toLowerCase
        (name, done, depth)
      }
      w.copy(child = query(w.child, seen), cteRelations = relations)
    case function: UnresolvedTableValuedFunction =>
      allowed(function.name)
      expressions(function, named)
    case other if Nodes(nameOf(other)) => expressions(other, named).withNewChildren(other.children.map(query(_, named)))
    case other => refuse(other.nodeName)
  }

  private def known(parts: Seq[String]): Table =
    tableOf(parts).flatMap(tables.get).getOrElse {
      val there = tables.values.map(_.name).toSeq.sorted.mkString(", ")
      throw new RefusedException(s"There is no table ${parts.mkString(".")}. Tables: $there.")
    }

  private def pinned(table: Table): LogicalPlan = {
    val relation = UnresolvedRelation(Seq(Database, table.name))
    table.version.fold[LogicalPlan](relation)(v => RelationTimeTravel(relation, None, Some(v.toString)))
  }

  private def expressions(plan: LogicalPlan, named: Set[String]): LogicalPlan = plan.transformExpressions {
    case s: SubqueryExpression => s.withNewPlan(query(s.plan, named)).asInstanceOf[Expression]
    case f: UnresolvedFunction => allowed(f.nameParts); f
    case g: UnresolvedGenerator => allowed(g.name.nameParts); g
    case e if nameOf(e).contains("UnresolvedIdentifier") => refuse("IDENTIFIER")
  }

  private def allowed(name: Seq[String]): Unit = {
    val isSpark = name.init.isEmpty || name.init.map(_.toLowerCase).mkString(".").matches("(system\\.)?builtin")
    if (!isSpark || !Functions(name.last.toLowerCase)) refuse(s"the function ${name.mkString(".")}")
  }
}

object Analyzed {
  private val Leaves = Set(
    "CTERelationRef", "LocalRelation", "OneRowRelation", "Range", "ResolvedInlineTable", "UnionLoopRef")
  private val Expressions = "org.apache.spark.sql.catalyst."
  private val Refused = Set(
    "CallMethodViaReflection", "TryReflect", "ScalaUDF", "ScalaUDAF", "ScalaAggregator", "PythonUDF", "PythonUDAF",
    "PythonUDTF", "UserDefinedGenerator", "InputFileName", "InputFileBlockStart", "InputFileBlockLength",
    "ExternalUserDefinedFunction")
}

/** Checks what a query has become: whatever the first check has missed would show here.
  *
  * @param tables
  *   by name in lower case
  */
class Analyzed(tables: Map[String, Table]) {
  import Analyzed._

  def check(plan: LogicalPlan): Unit = plan.foreachWithSubqueries { node =>
    node match {
      case LogicalRelation(HadoopFsRelation(files: TahoeLogFileIndex, _, _, _, _, _), _, _, _, _) =>
        if (!isTable(files)) Statement.refuse(s"version ${files.version} of ${files.path}")
      case leaf: LeafNode if !Leaves(Statement.nameOf(leaf)) => Statement.refuse(leaf.nodeName)
      case _: Command | _: ScriptTransformation => Statement.refuse(node.nodeName)
      case _ if !node.getClass.getName.startsWith(Expressions) => Statement.refuse(node.nodeName)
      case _ =>
    }
    node.expressions.foreach(_.foreach { each =>
      if (!each.getClass.getName.startsWith(Expressions) || Refused(Statement.nameOf(each)))
        Statement.refuse(s"the expression ${each.prettyName}")
    })
  }

  /** Whether it is one of the tables at its version. */
  private def isTable(files: TahoeLogFileIndex): Boolean =
    Tables.nameOf(files.path).flatMap(name => tables.get(name.toLowerCase)).exists(_.version.forall(_ == files.version))
}

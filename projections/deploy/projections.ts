// The CDK construct of dynamodb-projections, the same for all rule files. It runs the command `projections`, which must be installed.
// Written by `projections template --format cdk-typescript`.
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Fn, Stack, Token } from "aws-cdk-lib";
import { CfnAlarm } from "aws-cdk-lib/aws-cloudwatch";
import { CfnTable, ITable } from "aws-cdk-lib/aws-dynamodb";
import { CfnFunction } from "aws-cdk-lib/aws-lambda";
import { Asset } from "aws-cdk-lib/aws-s3-assets";
import { CfnQueue } from "aws-cdk-lib/aws-sqs";
import { CfnInclude } from "aws-cdk-lib/cloudformation-include";
import { Construct } from "constructs";

export interface ProjectionsProps {
  /** The rule file. */
  readonly rules: string;
  /**
   * The table with a stream of new and old images, or the tables by their names in the rules.
   * Without it, the stack creates the tables.
   */
  readonly table?: ITable | Record<string, ITable>;
  /** Values of the template's parameters, which may be tokens, such as the ARN of a topic. */
  readonly parameters?: Record<string, string | number | boolean>;
  /** The archive of `projections template --package`. Without it, the archive is built. */
  readonly code?: string;
  /** The rules whose changes pipes send to an event bus. */
  readonly notify?: string[];
  /** The command, if it is not on PATH, such as `.venv/bin/projections`. */
  readonly command?: string;
}

/** The functions of a rule file, with ledger, queues, alarms and dashboard. A stack can have one. */
export class Projections extends Construct {
  readonly template: CfnInclude;
  private readonly alarmIds: string[];

  constructor(scope: Construct, id: string, props: ProjectionsProps) {
    super(scope, id);
    const stack = Stack.of(this);
    if (stack.node.findAll().some((one) => one instanceof Projections && one !== this)) {
      throw new Error(`stack ${stack.stackName} has projections already. Use a stack of its own for ${id}`);
    }
    const tables: Record<string, ITable> =
      props.table === undefined ? {} : isTable(props.table) ? { main: props.table } : props.table;
    const given = Object.entries({ ...keys(tables), ...props.parameters });
    const tokens = Object.fromEntries(given.filter(([, value]) => Token.isUnresolved(value)));
    const directory = mkdtempSync(join(tmpdir(), "projections-"));
    try {
      const run = (...args: string[]) =>
        execFileSync(props.command ?? "projections", args, {
          encoding: "utf8",
          maxBuffer: 2 ** 26,
          stdio: ["ignore", "pipe", "inherit"],
        });
      const set = given.map(([name, value]) => (name in tokens ? `--set=${name}` : `--set=${name}=${value}`));
      const notify = (props.notify ?? []).map((rule) => `--notify=${rule}`);
      const existing = Object.keys(tables).length ? ["--existing-table"] : [];
      const code = props.code ?? join(directory, "functions.zip");
      const build = props.code === undefined ? ["--package", code] : [];
      const printed = run("template", props.rules, "--format", "cdk", ...notify, ...existing, ...set, ...build);
      const { Metadata, ...template } = JSON.parse(printed);
      const file = join(directory, "template.json");
      writeFileSync(file, JSON.stringify(template));
      const asset = new Asset(this, "Package", { path: code });
      const parameters = {
        ...tokens,
        ...ofTables(tables, Metadata.DynamoDBProjections.Tables),
        CodeBucket: asset.s3BucketName,
        CodeKey: asset.s3ObjectKey,
      };
      this.template = new CfnInclude(this, "Template", { templateFile: file, parameters });
      const types = Object.entries<{ Type: string }>(template.Resources);
      this.alarmIds = types.filter(([, { Type }]) => Type === "AWS::CloudWatch::Alarm").map(([name]) => name);
    } finally {
      rmSync(directory, { recursive: true });
    }
  }

  get streamFunction() {
    return this.template.getResource("StreamFunction") as CfnFunction;
  }

  get workerFunction() {
    return this.template.getResource("WorkerFunction") as CfnFunction;
  }

  get auditFunction() {
    return this.template.getResource("AuditFunction") as CfnFunction;
  }

  get quarantineQueue() {
    return this.template.getResource("QuarantineQueue") as CfnQueue;
  }

  /** The ledger that the stack creates: with the parameter ExistingLedgerTableName, it creates none. */
  get ledgerTable() {
    return this.template.getResource("LedgerTable") as CfnTable;
  }

  get alarms() {
    return this.alarmIds.map((name) => this.template.getResource(name) as CfnAlarm);
  }
}

function isTable(table: ITable | Record<string, ITable>): table is ITable {
  return Construct.isConstruct(table);
}

/** The customer managed keys of the tables as a parameter. */
function keys(tables: Record<string, ITable>): Record<string, string> {
  const found = Object.values(tables).flatMap((table) => table.encryptionKey?.keyArn ?? []);
  return found.length ? { ExistingTableKeyArns: Fn.join(",", found) } : {};
}

/** Name and stream of each table as parameters. */
function ofTables(tables: Record<string, ITable>, suffixes: Record<string, string>): Record<string, string> {
  const [named, needed] = [Object.keys(tables), Object.keys(suffixes)];
  if (named.length && [...named].sort().join() !== [...needed].sort().join()) {
    throw new Error(`the rules have the tables ${needed}, and \`table\` has ${named}. Pass all of them, or none`);
  }
  return Object.fromEntries(
    Object.entries(tables).flatMap(([name, table]) => {
      if (!table.tableStreamArn) {
        throw new Error(`table ${name} has no stream: set \`stream\`, or name its stream in \`fromTableAttributes\``);
      }
      return [
        [`ExistingTableName${suffixes[name]}`, table.tableName],
        [`ExistingStreamArn${suffixes[name]}`, table.tableStreamArn],
      ];
    }),
  );
}

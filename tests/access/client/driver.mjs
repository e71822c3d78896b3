// Calls functions of generated modules, compiled to JavaScript beside this file. Reads the calls from a JSON file, and prints what
// they return, or the name of the error that they throw.
import { readFile } from "node:fs/promises";
import { DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { DynamoDBDocumentClient, NumberValue } from "@aws-sdk/lib-dynamodb";

// a set, or a number that may have more digits than a double
const revive = (_, value) =>
  value?.$set ? new Set(value.$set) : value?.$number ? NumberValue.from(value.$number) : value;
const { endpoint, calls } = JSON.parse(await readFile(process.argv[2], "utf8"), revive);
const credentials = { accessKeyId: "x", secretAccessKey: "x" };
const client = DynamoDBDocumentClient.from(new DynamoDBClient({ endpoint, region: "eu-central-1", credentials }));

async function pagesOf(results, limit) {
  const pages = [];
  let token;
  do {
    const page = await results().page({ limit, token });
    pages.push(page.items);
    token = page.token;
  } while (token !== undefined);
  return pages;
}

const answers = [];
for (const { module, name, tables = [], parameters, limit, method, values = [] } of calls) {
  try {
    const call = (await import(`./${module}.js`))[name];
    const results = () => call(...tables.map((table) => ({ client, name: table })), ...parameters);
    if (method) answers.push({ value: (await results()[method](...values.map((value) => value ?? undefined))) ?? null });
    else if (limit) answers.push({ items: await results().all(), pages: await pagesOf(results, limit) });
    else answers.push({ value: (await results()) ?? null });
  } catch (error) {
    answers.push({ error: error.name, message: error.message });
  }
}
console.log(JSON.stringify(answers, (_, value) => (typeof value === "bigint" ? Number(value) : value)));

import { type Database, file, open } from "varve";
import { describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { folder } from "./support/processes.js";
import { hasOutput, shopIn, starts } from "./support/runtime-programs.js";

async function opened(directory: string): Promise<Database> {
  const db = await open("shop", { storage: file(directory), ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
}

const FILES_ONLY = ["--allow-read", "--allow-write"];
const BUSY = { name: "DatabaseBusyError" };

describe("Deno with permissions for files only", () => {
  test("databases work, and the quota is unknown", async () => {
    const directory = folder();
    const { stdout, stderr } = await starts(
      `${shopIn(directory)}
         const db = await shop();
         db.set("key", "value");
         db.flush();
         const { usage, fileBytes, quota } = db.stats();
         console.log(db.getText("key"), usage === fileBytes, quota);`,
      FILES_ONLY,
    ).ended;
    expect(stdout.trim(), stderr).toBe("value true undefined");
    expect((await opened(directory)).getText("key")).toBe("value");
  });

  test("a database that another program has open is refused", async () => {
    const directory = folder();
    await opened(directory);
    const { stdout, stderr } = await starts(
      `${shopIn(directory)} console.log(await shop().catch((error) => error.name));`,
      FILES_ONLY,
    ).ended;
    expect(stdout.trim(), stderr).toBe(BUSY.name);
  });

  test("a database is locked as long as its program runs, and a moment longer", async () => {
    const directory = folder();
    const program = starts(
      `${shopIn(directory)}
         const db = await shop();
         db.set("key", "value");
         setTimeout(() => console.log("open"));
         setInterval(() => {}, 1000);`,
      FILES_ONLY,
    );
    await hasOutput(program);
    await rejects(opened(directory), BUSY);
    program.child.kill("SIGKILL");
    await program.ended;
    expect((await opened(directory)).getText("key")).toBe("value");
  });
});

import { type Database, file, open } from "varve";
import { cleanup, context, equal, rejects, suite, test, wasmOption } from "../harness.js";
import { shopIn, speaks, starts } from "./support/anywhere.js";
import { folder } from "./support/processes.js";

async function opened(directory: string): Promise<Database> {
  const db = await open("shop", { storage: file(directory), ...wasmOption() });
  cleanup(() => db.close());
  return db;
}

const FILES_ONLY = ["--allow-read", "--allow-write"];
const BUSY = { name: "DatabaseBusyError" };

// Only Deno has separate permissions.
if (context().runtime === "deno") {
  suite("Deno with permissions for files only", () => {
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
      equal(stdout.trim(), "value true undefined", stderr);
      equal((await opened(directory)).getText("key"), "value");
    });

    test("a database that another program has open is refused", async () => {
      const directory = folder();
      await opened(directory);
      const { stdout, stderr } = await starts(
        `${shopIn(directory)} console.log(await shop().catch((error) => error.name));`,
        FILES_ONLY,
      ).ended;
      equal(stdout.trim(), BUSY.name, stderr);
    });

    test("a database is locked as long as its program lives, and a moment longer", async () => {
      const directory = folder();
      const program = starts(
        `${shopIn(directory)}
         const db = await shop();
         db.set("key", "value");
         setTimeout(() => console.log("open"));
         setInterval(() => {}, 1000);`,
        FILES_ONLY,
      );
      await speaks(program);
      await rejects(opened(directory), BUSY);
      program.child.kill("SIGKILL");
      await program.ended;
      equal((await opened(directory)).getText("key"), "value");
    });
  });
}

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { file } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { lockOf, NAME, openAndClose } from "./support/locks.js";
import { folder, Holder } from "./support/processes.js";
import { runs } from "./support/programs.js";

describe("the end of a process", () => {
  test("the exit hook can still write, and the lock is released", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.run("openWithHook", { directory, name: NAME, text: "written at exit" });
    holder.run("exit", { code: 3 }).catch(() => {});
    expect(await holder.ended()).toBe(3);
    expect(readFileSync(join(directory, "shop.varve"), "utf8")).toBe("written at exit");
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("an uncaught error runs the exit hook", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.run("openWithHook", { directory, name: NAME, text: "after the error" });
    await holder.run("throw");
    expect(await holder.ended()).toBe(1);
    expect(readFileSync(join(directory, "shop.varve"), "utf8")).toBe("after the error");
    // Deno does not report whether an error ends a program: the lock stays, and the next open breaks it.
    if (context().runtime !== "deno") expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
    await openAndClose(directory);
  });

  test("a removed exit hook does not run", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.run("openAndUnhook", { directory, name: NAME, text: "not to be written" });
    holder.run("exit").catch(() => {});
    await holder.ended();
    expect(readFileSync(join(directory, "shop.varve"), "utf8")).toBe("");
  });

  test("closing removes the exit listener, so that a program may open and close without end", async () => {
    const { stdout, stderr } = await runs(
      folder(),
      `const count = () => process.listenerCount("exit");
       // This loads what file() opens files with.
       await (await open("first", { storage: file(directory) })).close();
       const before = count();
       const opened = [];
       for (let n = 0; n < 20; n++) opened.push(await file(directory).open("n" + n));
       const during = count();
       for (const one of opened) one.file.close();
       console.log(during - before, count() - before);`,
    );
    expect(stderr, "no warning of too many listeners").toBe("");
    expect(stdout.trim()).toBe("1 0");
  });

  test("a worker thread that ends releases its lock", async () => {
    const directory = folder();
    await threadOpens(directory, "process.exit()");
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
    await openAndClose(directory);
  });

  test("a terminated worker thread is recognized, although its process runs", async () => {
    const directory = folder();
    await threadOpens(directory, "setInterval(() => {}, 1000);", true);
    assert(existsSync(lockOf(directory)), "it could not release its lock");
    await openAndClose(directory);
  });

  test("the lock of a running worker thread is respected, and the error names this process", async () => {
    const directory = folder();
    const refused = async () => {
      await rejects(file(directory).open(NAME), {
        code: "VARVE_DATABASE_BUSY",
        message: /this process .*another thread/,
      });
    };
    await threadOpens(directory, "setInterval(() => {}, 1000);", true, refused);
    await openAndClose(directory);
  });
});

/** Opens the database in a worker thread, which then runs `end`, or is terminated. */
async function threadOpens(
  directory: string,
  end: string,
  terminate = false,
  before: () => Promise<void> = async () => {},
): Promise<void> {
  const source = `
    import { parentPort } from "node:worker_threads";
    import { file, open } from "varve";
    await file(${JSON.stringify(directory)}).open(${JSON.stringify(NAME)});
    parentPort.postMessage("open");
    ${end}`;
  const path = join(context().root, ".build", `thread-${process.pid}.mjs`);
  writeFileSync(path, source);
  onTestFinished(() => rmSync(path, { force: true }));
  const worker = new Worker(path);
  const ended = new Promise((resolve, reject) => {
    worker.on("exit", resolve);
    worker.on("error", reject);
  });
  await new Promise((resolve) => worker.on("message", resolve));
  await before();
  if (terminate) await worker.terminate();
  await ended;
}

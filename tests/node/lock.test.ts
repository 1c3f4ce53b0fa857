import {
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { file } from "varve";
import {
  bytes,
  cleanup,
  context,
  deepEqual,
  equal,
  ok,
  rejects,
  suite,
  test,
  throws,
  turn,
} from "../harness.js";
import { folder, Holder } from "./support/processes.js";
import { runs } from "./support/programs.js";

const NAME = "shop";

function lockOf(directory: string): string {
  return join(directory, "shop.varve.lock");
}

/** A lock like the one that `holder` has, as it would look had something been different. */
async function forgedLock(directory: string, change: Record<string, unknown>): Promise<string> {
  const elsewhere = folder();
  const holder = await Holder.start();
  await holder.tell("open", { directory: elsewhere, name: NAME });
  const real = JSON.parse(readFileSync(lockOf(elsewhere), "utf8"));
  await holder.tell("close");
  const content = `${JSON.stringify({ ...real, ...change })}\n`;
  writeFileSync(lockOf(directory), content);
  return content;
}

async function opensAndCloses(directory: string): Promise<void> {
  const { file: opened } = await file(directory).open(NAME);
  opened.close();
  deepEqual(readdirSync(directory), ["shop.varve"]);
}

suite("the lock of a database file", () => {
  test("a second process is refused, with the number of the first", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    const error = await rejects(file(directory).open(NAME), {
      name: "DatabaseBusyError",
      code: "VARVE_DATABASE_BUSY",
      message: `process ${first.pid}`,
    });
    equal((error as Error & { pid?: number }).pid, first.pid);
    ok(error.message.includes(join(directory, "shop.varve")), "the message names the file");
  });

  test("a second open in this process is refused too, and says that it is this process", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    cleanup(() => opened.close());
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: /this process/,
    });
  });

  test("a refused open leaves the first one's lock and file alone", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    const before = readFileSync(lockOf(directory), "utf8");
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
    equal(readFileSync(lockOf(directory), "utf8"), before);
    deepEqual(readdirSync(directory).sort(), ["shop.varve", "shop.varve.lock"]);
  });

  test("another name in the same folder is another lock", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    const { file: opened } = await file(directory).open("shop2");
    opened.close();
  });

  test("closing gives the lock back", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    await first.tell("close");
    await opensAndCloses(directory);
  });

  test("a dead one is broken also where a test has put timers off and has a page's crypto", async () => {
    const directory = folder();
    await forgedLock(directory, { host: "elsewhere", space: "another" });
    const { crypto, setTimeout } = globalThis;
    const replace = (value: object) =>
      Object.entries(value).map(([name, value]) =>
        Object.defineProperty(globalThis, name, { value, configurable: true, writable: true }),
      );
    cleanup(() => replace({ crypto, setTimeout }));
    const getRandomValues = crypto.getRandomValues.bind(crypto);
    replace({ crypto: { getRandomValues }, setTimeout: () => 0 });
    await opensAndCloses(directory);
  });

  test("a killed holder is noticed", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    await first.kill();
    ok(existsSync(lockOf(directory)), "the dead process has left its lock");
    await opensAndCloses(directory);
  });

  test("a holder that ended and was not yet waited for is noticed", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.tell("open", { directory, name: NAME });
    // Killed without waiting: for a moment it is a zombie, whose number still answers.
    const ended = first.kill();
    const deadline = Date.now() + 60_000;
    for (;;) {
      try {
        await opensAndCloses(directory);
        break;
      } catch (error) {
        if (Date.now() > deadline) throw error;
      }
    }
    await ended;
  });

  test("a process number that was used again is told apart by when the process started", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: process.pid, started: "1" });
    await opensAndCloses(directory);
  });

  test("the same number with the same start is the living holder", async () => {
    const directory = folder();
    const alive = await Holder.start();
    await alive.tell("open", { directory: folder(), name: NAME });
    const { started, thread } = await ownLock(alive);
    await forgedLock(directory, { pid: alive.pid, started, thread });
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: String(alive.pid),
    });
  });

  test("a lock from before the machine was started again is dead", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: process.pid, boot: "00000000-0000-0000-0000-000000000000" });
    await opensAndCloses(directory);
  });

  test("a holder in another container is respected for as long as it touches its lock", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: 1, space: "pid:[1]", host: "elsewhere" });
    const touching = setInterval(() => utimesSync(lockOf(directory), new Date(), new Date()), 2000);
    cleanup(() => clearInterval(touching));
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: /process 1 of another container or machine \(elsewhere\)/,
    });
  });

  test("a holder in another container that is silent for eight seconds is dead", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: 1, space: "pid:[1]" });
    const start = Date.now();
    await opensAndCloses(directory);
    ok(Date.now() - start > 7900, "it was given time to show that it lives");
  });

  test("an open database touches its lock", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    cleanup(() => opened.close());
    const before = statSync(lockOf(directory)).mtimeMs;
    const deadline = Date.now() + 60_000;
    while (statSync(lockOf(directory)).mtimeMs === before) {
      ok(Date.now() < deadline, "it was touched");
      await turn(100);
    }
  });

  test("a holder that stood still and lost its lock writes no more, and its file may be closed", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    equal(opened.write(bytes("before"), { at: 0 }), 6);
    const real = Date.now;
    cleanup(() => {
      Date.now = real;
    });
    writeFileSync(lockOf(directory), "somebody else's");
    Date.now = () => real() + 6000;
    throws(() => opened.write(bytes("after"), { at: 0 }), { code: "EBADF", message: /taken over/ });
    throws(() => opened.truncate(0), { code: "EBADF" });
    opened.close();
    equal(readFileSync(join(directory, "shop.varve"), "utf8"), "before");
    equal(readFileSync(lockOf(directory), "utf8"), "somebody else's");
  });

  test("a holder that stood still and kept its lock goes on", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    cleanup(() => opened.close());
    const real = Date.now;
    cleanup(() => {
      Date.now = real;
    });
    Date.now = () => real() + 60_000;
    equal(opened.write(bytes("on and on"), { at: 0 }), 9);
  });

  test("an empty lock left by a power failure is removed", async () => {
    const directory = folder();
    writeFileSync(lockOf(directory), "");
    utimesSync(lockOf(directory), new Date(0), new Date(0));
    await opensAndCloses(directory);
  });

  test("a lock of garbage is removed", async () => {
    for (const garbage of ['{"pid":', "null", '{"pid":"7","token":"x"}', '{"pid":-1}', "\0\0\0"]) {
      const directory = folder();
      writeFileSync(lockOf(directory), garbage);
      utimesSync(lockOf(directory), new Date(0), new Date(0));
      await opensAndCloses(directory);
    }
  });

  test("a lock that is only just being written is waited for", async () => {
    const directory = folder();
    writeFileSync(lockOf(directory), "");
    const start = Date.now();
    await opensAndCloses(directory);
    ok(Date.now() - start > 1500, "it was given time to be written");
  });

  test("a breaker that died while it removed a dead lock is noticed itself", async () => {
    const directory = folder();
    const content = await forgedLock(directory, { pid: process.pid, started: "1" });
    writeFileSync(`${lockOf(directory)}.break`, content);
    await opensAndCloses(directory);
  });

  test("what a process wrote and did not live to put in place is removed with the dead lock", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: process.pid, started: "1" });
    const draft = `${lockOf(directory)}.0123456789abcdef`;
    writeFileSync(draft, "");
    utimesSync(draft, new Date(0), new Date(0));
    await opensAndCloses(directory);
  });

  test("a lock that became somebody else's is not released", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    writeFileSync(lockOf(directory), "somebody else's");
    opened.close();
    equal(readFileSync(lockOf(directory), "utf8"), "somebody else's");
  });

  test("two ways to the same folder are one database", async () => {
    const directory = folder();
    const link = join(folder(), "link");
    symlinkSync(directory, link);
    equal(file(link).identity(NAME), file(directory).identity(NAME));
    equal(file(join(link, "not", "there")).identity(NAME), join(directory, "not/there/shop.varve"));
    const { file: opened } = await file(directory).open(NAME);
    cleanup(() => opened.close());
    await rejects(file(link).open(NAME), { code: "VARVE_DATABASE_BUSY" });
  });

  test("says what keeps it from being made, and not from being cleared away again", async () => {
    let directory = folder();
    // A path of 4,095 bytes is the longest: one ends within what its draft has behind its own name.
    for (let left = 4_070; left > directory.length + 1; ) {
      directory = join(directory, "d".repeat(Math.min(200, left - directory.length - 1)));
    }
    const error = await rejects(file(directory).open(NAME), { code: "VARVE_STORAGE_UNAVAILABLE" });
    ok(/ENAMETOOLONG.* open/.test(error.message), error.message);
  });

  test("two ways to the same file are one database", async () => {
    const [directory, elsewhere] = [folder(), folder()];
    const linked = file(elsewhere);
    (await file(directory).open(NAME)).file.close();
    symlinkSync(join(directory, "shop.varve"), join(elsewhere, "shop.varve"));
    equal(linked.identity(NAME), file(directory).identity(NAME));
    const holder = await Holder.start();
    const busy = { code: "VARVE_DATABASE_BUSY" };
    await holder.tell("open", { directory, name: NAME });
    for (const readOnly of [false, true]) await rejects(linked.open(NAME, { readOnly }), busy);
    await rejects(async () => linked.destroy?.(NAME), busy);
    await holder.tell("close");
    const { file: opened } = await linked.open(NAME);
    deepEqual(readdirSync(directory).sort(), ["shop.varve", "shop.varve.lock"]);
    await rejects(holder.tell("open", { directory, name: NAME }), busy);
    opened.close();
    deepEqual(readdirSync(elsewhere), ["shop.varve"]);
    equal(await linked.destroy?.(NAME), true);
    deepEqual([...readdirSync(directory), ...readdirSync(elsewhere)], []);
  });
});

async function ownLock(holder: Holder): Promise<{ started: string; thread: string }> {
  const directory = folder();
  await holder.tell("open", { directory, name: "own" });
  return JSON.parse(readFileSync(join(directory, "own.varve.lock"), "utf8"));
}

suite("starters that race for a dead lock", () => {
  const STARTERS = 8;
  const ROUNDS = 20;

  test("never hold it together, and each gets its turn, in twenty rounds of eight", async () => {
    const directory = folder();
    const dead = await forgedLock(directory, { pid: process.pid, started: "1" });
    const starters = await Promise.all(
      Array.from({ length: STARTERS }, () => Holder.start("--dawdle")),
    );
    for (let round = 0; round < ROUNDS; round += 1) {
      writeFileSync(lockOf(directory), dead);
      const results = await Promise.all(
        starters.map((starter) => starter.tell("race", { directory, name: NAME })),
      );
      equal(results.filter(({ together }) => together !== 0).length, 0, `round ${round}`);
      deepEqual(readdirSync(directory), ["shop.varve"], `round ${round}`);
    }
  });

  test("get past holders that are killed one after the other", async () => {
    const directory = folder();
    const starters = await Promise.all(
      Array.from({ length: STARTERS }, () => Holder.start("--dawdle")),
    );
    const results = await Promise.all(
      starters.map((starter, index) =>
        starter
          .tell("race", { directory, name: NAME, die: index % 2 === 0 })
          .catch((error) => ({ together: error.code === "ENDED" ? 0 : 1, refused: 0 })),
      ),
    );
    equal(results.filter(({ together }) => together !== 0).length, 0);
    await opensAndCloses(directory);
  });
});

suite("the end of a process", () => {
  test("runs the hook, which can still write, and gives the lock back", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.tell("openWithHook", { directory, name: NAME, text: "written at exit" });
    holder.tell("exit", { code: 3 }).catch(() => {});
    equal(await holder.ended(), 3);
    equal(readFileSync(join(directory, "shop.varve"), "utf8"), "written at exit");
    deepEqual(readdirSync(directory), ["shop.varve"]);
  });

  test("by an uncaught error runs the hook all the same", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.tell("openWithHook", { directory, name: NAME, text: "after the error" });
    await holder.tell("throw");
    equal(await holder.ended(), 1);
    equal(readFileSync(join(directory, "shop.varve"), "utf8"), "after the error");
    // Deno does not say whether an error ends a program: the lock stays, and the next one sees through it.
    if (context().runtime !== "deno") deepEqual(readdirSync(directory), ["shop.varve"]);
    await opensAndCloses(directory);
  });

  test("does not run a hook that was taken away", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.tell("openAndUnhook", { directory, name: NAME, text: "not to be written" });
    holder.tell("exit").catch(() => {});
    await holder.ended();
    equal(readFileSync(join(directory, "shop.varve"), "utf8"), "");
  });

  test("closing takes the listener away, so that a program may open and close for ever", async () => {
    const { stdout, stderr } = await runs(
      folder(),
      `const count = () => process.listenerCount("exit");
       const before = count();
       const opened = [];
       for (let n = 0; n < 20; n++) opened.push(await file(directory).open("n" + n));
       const during = count();
       for (const one of opened) one.file.close();
       console.log(during - before, count() - before);`,
    );
    equal(stderr, "", "no warning of too many listeners");
    equal(stdout.trim(), "1 0");
  });

  test("a worker thread that ends gives its lock back", async () => {
    const directory = folder();
    await threadOpens(directory, "process.exit()");
    deepEqual(readdirSync(directory), ["shop.varve"]);
    await opensAndCloses(directory);
  });

  test("a worker thread that was terminated is noticed, although its process lives", async () => {
    const directory = folder();
    await threadOpens(directory, "setInterval(() => {}, 1000);", true);
    ok(existsSync(lockOf(directory)), "it could not give its lock back");
    await opensAndCloses(directory);
  });

  test("a worker thread that lives is respected, and named as one of this process", async () => {
    const directory = folder();
    const refused = async () => {
      await rejects(file(directory).open(NAME), {
        code: "VARVE_DATABASE_BUSY",
        message: /this process .*another thread/,
      });
    };
    await threadOpens(directory, "setInterval(() => {}, 1000);", true, refused);
    await opensAndCloses(directory);
  });
});

/** Opens the database in a worker thread, which then does `end`, or is terminated. */
async function threadOpens(
  directory: string,
  end: string,
  terminate = false,
  before: () => Promise<void> = async () => {},
): Promise<void> {
  const source = `
    import { parentPort } from "node:worker_threads";
    import { file } from "varve";
    await file(${JSON.stringify(directory)}).open(${JSON.stringify(NAME)});
    parentPort.postMessage("open");
    ${end}`;
  const path = join(context().root, ".build", `thread-${process.pid}.mjs`);
  writeFileSync(path, source);
  cleanup(() => rmSync(path, { force: true }));
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

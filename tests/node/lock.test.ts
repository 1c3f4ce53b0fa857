import fs, {
  existsSync,
  linkSync,
  lstatSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { destroy, file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes, turn } from "../support/values.js";
import { folder, Holder, type LockFields, lockContent, lockFields } from "./support/processes.js";
import { runs, start } from "./support/programs.js";
import { hasOutput } from "./support/runtime-programs.js";

const NAME = "shop";

function lockOf(directory: string): string {
  return join(directory, "shop.varve.lock");
}

/** A forged lock like that of `holder`, with some fields changed. */
async function forgedLock(directory: string, change: Partial<LockFields>): Promise<string> {
  const elsewhere = folder();
  const holder = await Holder.start();
  await holder.run("open", { directory: elsewhere, name: NAME });
  const real = lockFields(readFileSync(lockOf(elsewhere), "utf8"));
  await holder.run("close");
  const content = lockContent({ ...real, ...change });
  writeFileSync(lockOf(directory), content);
  return content;
}

/** Sends heartbeats for a forged lock until the test ends, by changing its time stamps. */
function sendHeartbeats(directory: string): void {
  let count = 0;
  const timer = setInterval(() => {
    count += 1;
    utimesSync(lockOf(directory), count, count);
  }, 2000);
  onTestFinished(() => clearInterval(timer));
}

/** Opens and closes the database, and checks that no lock is left. */
async function openAndClose(directory: string): Promise<void> {
  const { file: opened } = await file(directory).open(NAME);
  opened.close();
  expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
}

describe("the lock file of a database", () => {
  test("a second process is refused, with the number of the first", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const error = await rejects(file(directory).open(NAME), {
      name: "DatabaseBusyError",
      code: "VARVE_DATABASE_BUSY",
      message: `process ${first.pid}`,
    });
    expect((error as Error & { pid?: number }).pid).toBe(first.pid);
    assert(error.message.includes(join(directory, "shop.varve")), "the message names the file");
  });

  test("a second open in this process is refused, and the error names this process", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: /this process/,
    });
  });

  test("a refused open leaves the holder's lock and file alone", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const before = readFileSync(lockOf(directory), "utf8");
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
    expect(readFileSync(lockOf(directory), "utf8")).toBe(before);
    expect(readdirSync(directory).sort()).toStrictEqual(["shop.varve", "shop.varve.lock"]);
  });

  test("another name in the same folder has another lock", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    const { file: opened } = await file(directory).open("shop2");
    opened.close();
  });

  test("closing releases the lock", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    await first.run("close");
    await openAndClose(directory);
  });

  test("a stale lock is broken under fake timers and a page's crypto", async () => {
    const directory = folder();
    await forgedLock(directory, { host: "elsewhere", space: "another" });
    const { crypto, setTimeout } = globalThis;
    const replace = (value: object) =>
      Object.entries(value).map(([name, value]) =>
        Object.defineProperty(globalThis, name, { value, configurable: true, writable: true }),
      );
    onTestFinished(() => {
      replace({ crypto, setTimeout });
    });
    const getRandomValues = crypto.getRandomValues.bind(crypto);
    replace({ crypto: { getRandomValues }, setTimeout: () => 0 });
    await openAndClose(directory);
  });

  test("a killed holder is recognized", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    await first.kill();
    assert(existsSync(lockOf(directory)), "the killed process has left its lock");
    await openAndClose(directory);
  });

  test("a holder that ended and was not yet waited for is recognized", async () => {
    const directory = folder();
    const first = await Holder.start();
    await first.run("open", { directory, name: NAME });
    // Killed without waiting: for a moment it is a zombie, whose process number still exists.
    const ended = first.kill();
    const deadline = Date.now() + 60_000;
    for (;;) {
      try {
        await openAndClose(directory);
        break;
      } catch (error) {
        if (Date.now() > deadline) throw error;
      }
    }
    await ended;
  });

  test("a reused process number is recognized by the start time", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: String(process.pid), started: "1" });
    await openAndClose(directory);
  });

  test("the same number with the same start time is the running holder", async () => {
    const directory = folder();
    const holder = await Holder.start();
    await holder.run("open", { directory: folder(), name: NAME });
    const { started, thread } = await ownLock(holder);
    await forgedLock(directory, { pid: String(holder.pid), started, thread });
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: String(holder.pid),
    });
  });

  test("a lock from before the machine's reboot is stale", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: String(process.pid), boot: "0" });
    await openAndClose(directory);
  });

  test("a holder in another container is respected as long as it sends heartbeats", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: "1", space: "1", name: "elsewhere" });
    sendHeartbeats(directory);
    await rejects(file(directory).open(NAME), {
      code: "VARVE_DATABASE_BUSY",
      message: /process 1 of another container or machine \(elsewhere\)/,
    });
  });

  test("the lock of another container is stale after eight seconds without a heartbeat", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: "1", space: "1" });
    const start = Date.now();
    await openAndClose(directory);
    assert(Date.now() - start > 7900, "it had time to send a heartbeat");
  });

  test("the process number of a holder that may be on another machine is ignored", async () => {
    const changes: Partial<LockFields>[] = [
      { boot: "0" },
      { space: "-" },
      { boot: "-", space: "-" },
      { boot: "-", space: "-", host: "elsewhere", name: "elsewhere" },
    ];
    await Promise.all(
      changes.map(async (change) => {
        const directory = folder();
        await forgedLock(directory, { pid: "999999", ...change });
        sendHeartbeats(directory);
        await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
      }),
    );
  });

  for (const platform of ["darwin", "win32", "freebsd"]) {
    test(`the process number of a holder is ignored where ${platform} does not identify machines`, async () => {
      const directory = folder();
      await forgedLock(directory, { pid: "999999", boot: "-", space: "-", host: "elsewhere" });
      sendHeartbeats(directory);
      const { stdout, stderr } = await runs(
        directory,
        `Object.defineProperty(process, "platform", { value: ${JSON.stringify(platform)} });
         console.log(await shop().then(() => "open", (error) => error.code));`,
      );
      expect(stdout.trim(), stderr).toBe("VARVE_DATABASE_BUSY");
    });
  }

  test("a step of the wall clock does not break a lock", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: "1", space: "1" });
    sendHeartbeats(directory);
    const real = Date.now;
    let steps = 0;
    onTestFinished(() => {
      Date.now = real;
    });
    Date.now = () => {
      steps += 1;
      return real() + steps * (steps % 2 === 0 ? 3_600_000 : -3_600_000);
    };
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
  });

  test("a heartbeat while the lock is being broken keeps it", async () => {
    const directory = folder();
    const content = await forgedLock(directory, { pid: "1", space: "1" });
    const { renameSync } = fs;
    onTestFinished(() => {
      fs.renameSync = renameSync;
    });
    fs.renameSync = ((from: string, to: string) => {
      fs.renameSync = renameSync;
      utimesSync(from, 1, 1);
      renameSync(from, to);
    }) as typeof renameSync;
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
    expect(fs.renameSync, "it was about to be broken").toBe(renameSync);
    expect(readFileSync(lockOf(directory), "utf8")).toBe(content);
    expect(readdirSync(directory)).toStrictEqual(["shop.varve.lock"]);
  });

  test("a lock created while another one is put back gives way to it", async () => {
    const directory = folder();
    const content = await forgedLock(directory, { pid: "1", space: "1" });
    const breaker = `${lockOf(directory)}.break`;
    const moved = join(directory, "moved");
    fs.renameSync(lockOf(directory), moved);
    writeFileSync(breaker, content);
    const opening = rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
    await turn(1000);
    assert(existsSync(lockOf(directory)), "it was created");
    fs.renameSync(moved, lockOf(directory));
    rmSync(breaker);
    sendHeartbeats(directory);
    await opening;
    expect(readFileSync(lockOf(directory), "utf8")).toBe(content);
  });

  test("a holder whose lock is moved away for a moment keeps it", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const real = Date.now;
    const { lutimesSync } = fs;
    onTestFinished(() => {
      Date.now = real;
      fs.lutimesSync = lutimesSync;
    });
    const moved = join(directory, "moved");
    fs.renameSync(lockOf(directory), moved);
    let misses = 0;
    fs.lutimesSync = (path, ...times) => {
      misses += 1;
      if (misses === 3) fs.renameSync(moved, path);
      lutimesSync(path, ...times);
    };
    Date.now = () => real() + 60_000;
    expect(opened.write(bytes("continued"), { at: 0 })).toBe(9);
    expect(misses).toBe(3);
  });

  test("heartbeats go on while the wall clock stands still, as under fake timers", async () => {
    const directory = folder();
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    Date.now = () => 1_000_000;
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const stamps = new Set<number>();
    const deadline = real() + 60_000;
    while (stamps.size < 3) {
      stamps.add(statSync(lockOf(directory)).mtimeMs);
      assert(real() < deadline, "no heartbeat within a minute");
      await turn(100);
    }
  });

  test("a write while the lock was lost does not count", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    const { writeSync } = fs;
    const real = Date.now;
    onTestFinished(() => {
      fs.writeSync = writeSync;
      Date.now = real;
    });
    fs.writeSync = ((...args: [number, Uint8Array, number, number, number]) => {
      // As if it had been suspended between its check of the lock and the end of its write.
      fs.writeSync = writeSync;
      Date.now = () => real() + 60_000;
      writeFileSync(lockOf(directory), "of another process");
      return writeSync(...args);
    }) as typeof writeSync;
    throws(() => opened.write(bytes("after"), { at: 0 }), { code: "VARVE_FILE_LOST" });
    opened.close();
  });

  test("a flush does not count if the lock is missing", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    expect(opened.write(bytes("before"), { at: 0 })).toBe(6);
    rmSync(lockOf(directory));
    throws(() => opened.flush(), { code: "VARVE_FILE_LOST", message: /removed, or taken over/ });
    opened.close();
  });

  test("an open database sends heartbeats", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const before = statSync(lockOf(directory)).mtimeMs;
    const deadline = Date.now() + 60_000;
    while (statSync(lockOf(directory)).mtimeMs === before) {
      assert(Date.now() < deadline, "no heartbeat within a minute");
      await turn(100);
    }
  });

  test("a suspended holder that lost its lock writes no more, and its file may be closed", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    expect(opened.write(bytes("before"), { at: 0 })).toBe(6);
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    writeFileSync(lockOf(directory), "of another process");
    Date.now = () => real() + 6000;
    const lost = { name: "FileLostError", code: "VARVE_FILE_LOST", message: /taken over/ } as const;
    throws(() => opened.write(bytes("after"), { at: 0 }), lost);
    throws(() => opened.truncate(0), lost);
    opened.close();
    expect(readFileSync(join(directory, "shop.varve"), "utf8")).toBe("before");
    expect(readFileSync(lockOf(directory), "utf8")).toBe("of another process");
  });

  test("a suspended holder that kept its lock goes on", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const real = Date.now;
    onTestFinished(() => {
      Date.now = real;
    });
    Date.now = () => real() + 60_000;
    expect(opened.write(bytes("continued"), { at: 0 })).toBe(9);
  });

  test("an empty lock left by a power failure is removed", async () => {
    const directory = folder();
    for (const left of ["", "\0\0\0"]) {
      writeFileSync(lockOf(directory), left);
      utimesSync(lockOf(directory), new Date(0), new Date(0));
      await openAndClose(directory);
    }
  });

  test("a lock without a valid content is removed after eight seconds without a heartbeat", async () => {
    const garbage = [
      "garbage",
      "0badcafe",
      "0badcafe 7 - - - -",
      "0badcafe 0 - - - - -",
      "0badcafe -1 - - - - -",
    ];
    const start = Date.now();
    await Promise.all(
      garbage.map(async (content) => {
        const directory = folder();
        writeFileSync(lockOf(directory), content);
        utimesSync(lockOf(directory), new Date(0), new Date(0));
        await openAndClose(directory);
      }),
    );
    const directory = folder();
    symlinkSync("nowhere", lockOf(directory));
    await openAndClose(directory);
    assert(Date.now() - start > 7900, "a newer version might have created it");
  });

  test("a lock of another version is respected as long as its holder sends heartbeats", async () => {
    const directory = folder();
    writeFileSync(lockOf(directory), '{"pid":1}\n');
    sendHeartbeats(directory);
    await rejects(file(directory).open(NAME), { code: "VARVE_DATABASE_BUSY" });
  });

  test("a lock that is being written is waited for", async () => {
    const directory = folder();
    writeFileSync(lockOf(directory), "");
    const start = Date.now();
    await openAndClose(directory);
    assert(Date.now() - start > 1500, "it had time to be written");
  });

  test("a process killed while removing a stale lock is recognized", async () => {
    const directory = folder();
    const content = await forgedLock(directory, { pid: String(process.pid), started: "1" });
    writeFileSync(`${lockOf(directory)}.break`, content);
    await openAndClose(directory);
  });

  test("drafts of killed processes are removed with the stale lock", async () => {
    const directory = folder();
    await forgedLock(directory, { pid: String(process.pid), started: "1" });
    const draft = `${lockOf(directory)}.01234567`;
    writeFileSync(draft, "");
    utimesSync(draft, new Date(0), new Date(0));
    await openAndClose(directory);
  });

  test("a lock that another process has taken over is not released", async () => {
    const directory = folder();
    const { file: opened } = await file(directory).open(NAME);
    writeFileSync(lockOf(directory), "of another process");
    opened.close();
    expect(readFileSync(lockOf(directory), "utf8")).toBe("of another process");
  });

  test("two paths to the same folder are one database", async () => {
    const directory = folder();
    const link = join(folder(), "link");
    symlinkSync(directory, link);
    expect(file(link).identity(NAME)).toBe(file(directory).identity(NAME));
    expect(file(join(link, "not", "there")).identity(NAME)).toBe(
      join(directory, "not/there/shop.varve"),
    );
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    await rejects(file(link).open(NAME), { code: "VARVE_DATABASE_BUSY" });
  });

  test("errors of creating the lock are reported, and errors of its cleanup are not", async () => {
    let directory = folder();
    // A path has at most 4,095 bytes, so the path of the draft is too long.
    for (let left = 4_075; left > directory.length + 1; ) {
      directory = join(directory, "d".repeat(Math.min(200, left - directory.length - 1)));
    }
    const error = await rejects(file(directory).open(NAME), { code: "VARVE_STORAGE_UNAVAILABLE" });
    assert(/ENAMETOOLONG.* open/.test(error.message), error.message);
  });

  test("two paths to the same file are one database", async () => {
    const [directory, elsewhere] = [folder(), folder()];
    const linked = file(elsewhere);
    (await file(directory).open(NAME)).file.close();
    symlinkSync(join(directory, "shop.varve"), join(elsewhere, "shop.varve"));
    expect(linked.identity(NAME)).toBe(file(directory).identity(NAME));
    const holder = await Holder.start();
    const busy = { code: "VARVE_DATABASE_BUSY" };
    await holder.run("open", { directory, name: NAME });
    for (const readOnly of [false, true]) await rejects(linked.open(NAME, { readOnly }), busy);
    await rejects(async () => linked.destroy?.(NAME), busy);
    await holder.run("close");
    const { file: opened } = await linked.open(NAME);
    expect(readdirSync(directory).sort()).toStrictEqual(["shop.varve", "shop.varve.lock"]);
    await rejects(holder.run("open", { directory, name: NAME }), busy);
    opened.close();
    expect(readdirSync(elsewhere)).toStrictEqual(["shop.varve"]);
    expect(await linked.destroy?.(NAME)).toBe(true);
    expect([...readdirSync(directory), ...readdirSync(elsewhere)]).toStrictEqual([]);
  });
});

describe("a file with two names (hard links)", () => {
  const refused = { code: "VARVE_STORAGE_UNAVAILABLE", message: /2 names \(hard links\).*Remove/ };

  test("it is refused under both names and left alone, and readOnly opens it", async () => {
    const directory = folder();
    const storage = file(directory);
    const db = await open(NAME, { storage });
    db.set("a", "1");
    await db.close();
    linkSync(join(directory, "shop.varve"), join(directory, "other.varve"));
    for (const name of [NAME, "other"]) {
      await rejects(open(name, { storage }), refused);
      const reader = await open(name, { storage, readOnly: true });
      expect(reader.getText("a")).toBe("1");
      await reader.close();
    }
    expect(readdirSync(directory).sort()).toStrictEqual(["other.varve", "shop.varve"]);
    expect(await destroy("other", { storage })).toBe(true);
    const again = await open(NAME, { storage });
    expect(again.getText("a")).toBe("1");
    await again.close();
  });

  test("a name added while it is open is refused, and the first one stays usable", async () => {
    const directory = folder();
    const storage = file(directory);
    const db = await open(NAME, { storage });
    db.set("a", "1");
    db.flush();
    linkSync(join(directory, "shop.varve"), join(directory, "other.varve"));
    await rejects(open("other", { storage }), refused);
    db.set("b", "2");
    db.flush();
    await db.close();
    rmSync(join(directory, "other.varve"));
    const again = await open(NAME, { storage });
    expect([...again.keys()].length).toBe(2);
    await again.close();
  });
});

/** The target of a symbolic link that replaces this content. It has no host name. */
function linkText(content: string): string {
  return content.split(" ").slice(0, -1).join(" ");
}

describe("the lock on a full disk", () => {
  test("the lock is a link that names its holder, short enough for ext4 to store inline", async () => {
    const directory = folder();
    const first = await Holder.start("--full");
    await first.run("open", { directory, name: NAME });
    const text = readlinkSync(lockOf(directory));
    assert(text.length <= 59, text);
    expect(lockFields(text).pid).toBe(String(first.pid));
    const error = await rejects(file(directory).open(NAME), {
      name: "DatabaseBusyError",
      message: `open in process ${first.pid}`,
    });
    expect(Reflect.get(error, "pid")).toBe(first.pid);
    await first.run("close");
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("a killed holder is recognized, and a running one sends heartbeats", async () => {
    const directory = folder();
    const first = await Holder.start("--full");
    await first.run("open", { directory, name: NAME });
    const before = lstatSync(lockOf(directory)).mtimeMs;
    const deadline = Date.now() + 60_000;
    while (lstatSync(lockOf(directory)).mtimeMs === before) {
      assert(Date.now() < deadline, "no heartbeat within a minute");
      await turn(100);
    }
    await first.kill();
    assert(lstatSync(lockOf(directory)).isSymbolicLink(), "the killed process has left its lock");
    const second = await Holder.start("--full");
    await second.run("open", { directory, name: NAME });
    await second.run("close");
    expect(readdirSync(directory)).toStrictEqual(["shop.varve"]);
  });

  test("the longest numbers and fingerprints fit into such a link", () => {
    const longest = {
      token: "01234567",
      pid: "4194304",
      started: "zzzzzz",
      thread: "4194304:zzzzzz",
    };
    const text = linkText(
      lockContent({ ...longest, boot: "zzzzzz", space: "zzzzzz", host: "zzzzzz", name: "" }),
    );
    expect(text.length).toBe(59);
  });

  test("a file of some segments grows without holes", async () => {
    const directory = folder();
    const writes: [number, number][] = [];
    const write = fs.writeSync;
    onTestFinished(() => {
      fs.writeSync = write;
    });
    fs.writeSync = ((...args: [number, Uint8Array, number, number, number]) => {
      const count = write(...args);
      writes.push([args[4], args[4] + count]);
      return count;
    }) as typeof write;
    const db = await open(NAME, { storage: file(directory) });
    for (let i = 0; i < 40; i += 1) db.set(`${i}`, new Uint8Array(100_000));
    db.flush();
    const SEGMENT = 1_048_576;
    let end = SEGMENT + 8_192;
    for (const [from, to] of writes.sort(([a], [b]) => a - b))
      if (from <= end) end = Math.max(end, to);
    const size = statSync(join(directory, "shop.varve")).size;
    assert(size > 5 * SEGMENT, "it has a reserve");
    expect(end).toBe(size);
    await db.close();
  });
});

async function ownLock(holder: Holder): Promise<LockFields> {
  const directory = folder();
  await holder.run("open", { directory, name: "own" });
  return lockFields(readFileSync(join(directory, "own.varve.lock"), "utf8"));
}

describe("holders suspended for longer than it takes to break their lock", () => {
  /** Commits one key after the other, and reports each only after its commit. */
  const commits = (name: string, count: number, space: string, directory: string) => `
    const { readlinkSync } = fs;
    // As if in another container, so that neither sees the processes of the other.
    fs.readlinkSync = (path, ...more) =>
      path === "/proc/self/ns/pid" ? "${space}" : readlinkSync(path, ...more);
    const acknowledged = fs.openSync(${JSON.stringify(directory)} + "/${name}.txt", "a");
    const db = await shop();
    fs.writeSync(1, "open ");
    for (let i = 0; i < ${count}; i += 1) {
      try {
        db.set("${name} " + i, "value".repeat(1 + i % 50));
        db.commit();
        if (i % 100 === 0) db.flush();
      } catch (error) {
        console.log(error.code, error.reason);
        process.exit();
      }
      fs.writeSync(acknowledged, i + " ");
    }
    await db.close();
    console.log("closed");`;

  test("a suspended holder acknowledges nothing more, and no acknowledged commit of either holder is lost", async () => {
    const ENDLESS = 100_000_000;
    await Promise.all(
      Array.from({ length: 6 }, async (_, round) => {
        const directory = folder();
        const first = start(directory, commits("first", ENDLESS, "pid:[1]", directory));
        await hasOutput(first);
        await turn(200 + round * 37);
        first.child.kill("SIGSTOP");
        const second = start(directory, commits("second", ENDLESS, "pid:[2]", directory));
        if (context().runtime === "deno") {
          // Deno also has the system's lock, which a suspended process keeps.
          assert((await second.ended).stderr.includes("DatabaseBusyError"));
          // Deno's kill() has no effect on a child that was sent a signal before.
          process.kill(first.child.pid as number, "SIGKILL");
          await first.ended;
          return;
        }
        await hasOutput(second);
        first.child.kill("SIGCONT");
        const { stdout, stderr } = await first.ended;
        assert(stdout.includes("VARVE_FILE_LOST taken-over"), `${stdout} ${stderr}`);
        await turn(200);
        second.child.kill("SIGKILL");
        await second.ended;
        const db = await open(NAME, { storage: file(directory) });
        for (const name of ["first", "second"]) {
          const committed = readFileSync(join(directory, `${name}.txt`), "utf8")
            .trimEnd()
            .split(" ");
          const missing = committed.filter((i) => db.getText(`${name} ${i}`) === undefined);
          assert(committed.length > 10, `${name} committed ${committed.length} times`);
          expect(missing, `of ${name}, round ${round}`).toStrictEqual([]);
        }
        expect((await db.verify()).problems.length).toBe(0);
        await db.close();
      }),
    );
  });
});

describe("processes racing for a stale lock", () => {
  const STARTERS = 8;
  const ROUNDS = 20;

  for (const full of [false, true]) {
    const where = full ? "on a full disk" : "with space on the disk";
    test(`${where} never hold it together, and each gets its turn, in twenty rounds of eight`, async () => {
      const directory = folder();
      const stale = await forgedLock(directory, { pid: String(process.pid), started: "1" });
      const starters = await Promise.all(
        Array.from({ length: STARTERS }, (_, index) =>
          full && index > 0 ? Holder.start("--delays", "--full") : Holder.start("--delays"),
        ),
      );
      for (let round = 0; round < ROUNDS; round += 1) {
        rmSync(lockOf(directory), { force: true });
        if (full) symlinkSync(linkText(stale), lockOf(directory));
        else writeFileSync(lockOf(directory), stale);
        const results = await Promise.all(
          starters.map((starter) => starter.run("race", { directory, name: NAME })),
        );
        expect(results.filter(({ together }) => together !== 0).length, `round ${round}`).toBe(0);
        expect(readdirSync(directory), `round ${round}`).toStrictEqual(["shop.varve"]);
      }
    });
  }

  test("the race survives holders that are killed one after the other", async () => {
    const directory = folder();
    const starters = await Promise.all(
      Array.from({ length: STARTERS }, () => Holder.start("--delays")),
    );
    const results = await Promise.all(
      starters.map((starter, index) =>
        starter
          .run("race", { directory, name: NAME, isKilled: index % 2 === 0 })
          .catch((error) => ({ together: error.code === "ENDED" ? 0 : 1, refused: 0 })),
      ),
    );
    expect(results.filter(({ together }) => together !== 0).length).toBe(0);
    await openAndClose(directory);
  });
});

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

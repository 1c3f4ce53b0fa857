import fs, {
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
import { install } from "@sinonjs/fake-timers";
import { file } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";
import { forgedLock, lockOf, NAME, openAndClose, sendHeartbeats } from "./support/locks.js";
import { folder, Holder, type LockFields, lockFields } from "./support/processes.js";
import { runs } from "./support/programs.js";

describe("breaking stale locks", () => {
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

  test("under fake timers, a holder sends heartbeats, and a lock of another container without them is broken", async () => {
    const directory = folder();
    await forgedLock(directory, { host: "elsewhere", space: "another" });
    const { setTimeout } = globalThis;
    const clock = install();
    onTestFinished(() => {
      clock.runMicrotasks();
      clock.uninstall();
    });
    const { file: opened } = await file(directory).open(NAME);
    onTestFinished(() => opened.close());
    const stamps = new Set<number>();
    while (stamps.size < 3) {
      stamps.add(statSync(lockOf(directory)).mtimeMs);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
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
});

async function ownLock(holder: Holder): Promise<LockFields> {
  const directory = folder();
  await holder.run("open", { directory, name: "own" });
  return lockFields(readFileSync(join(directory, "own.varve.lock"), "utf8"));
}

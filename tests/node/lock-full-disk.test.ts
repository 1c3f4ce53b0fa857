import fs, { lstatSync, readdirSync, readlinkSync, statSync } from "node:fs";
import { join } from "node:path";
import { file, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";
import { linkText, lockOf, NAME } from "./support/locks.js";
import { folder, Holder, lockContent, lockFields } from "./support/processes.js";

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

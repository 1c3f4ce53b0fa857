// A process that opens database files by commands of its parent. Plain JavaScript on the built package, so that it
// starts fast and many can run at a time.

import fs, { existsSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { file } from "varve";

const opened = [];

/**
 * Delays every step of taking a lock at random, so that the steps of several processes interleave. Without delays a
 * race lasts microseconds, and a wrong lock would pass.
 */
function delayCalls() {
  const clock = new Int32Array(new SharedArrayBuffer(4));
  const slow = ["openSync", "linkSync", "readlinkSync", "renameSync", "symlinkSync", "unlinkSync"];
  for (const call of slow) {
    const quick = fs[call];
    fs[call] = (...args) => {
      // A fifth of the delays is long, so that one step takes as long as many steps of another process.
      Atomics.wait(clock, 0, 0, Math.random() < 0.2 ? Math.random() * 15 : Math.random());
      return quick.apply(fs, args);
    };
  }
}

/** Simulates a disk without space for a lock file. */
function fill() {
  const write = fs.writeFileSync;
  fs.writeFileSync = (path, ...args) => {
    if (!String(path).includes(".lock")) return write.call(fs, path, ...args);
    write.call(fs, path, "", ...args.slice(1));
    throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
  };
}

const commands = {
  /** Opens a database and keeps it open. */
  async open({ directory, name }) {
    opened.push(await file(directory).open(name));
    return {};
  },

  /** Opens a database, and writes `text` in the exit hook. */
  async openWithHook({ directory, name, text }) {
    const one = await file(directory).open(name);
    opened.push(one);
    one.onExit?.(() => one.file.write(new TextEncoder().encode(text), { at: 0 }));
    return {};
  },

  /** The same, and removes the hook again. */
  async openAndUnhook({ directory, name, text }) {
    const one = await file(directory).open(name);
    opened.push(one);
    one.onExit?.(() => one.file.write(new TextEncoder().encode(text), { at: 0 }))();
    return {};
  },

  close() {
    for (const { file: one } of opened.splice(0)) one.close();
    return {};
  },

  exit: ({ code = 0 }) => process.exit(code),

  throw() {
    setTimeout(() => {
      throw new Error("an uncaught error, on purpose");
    });
    return {};
  },

  /**
   * Tries until it has had the file once. Returns how often it was refused, and whether another process had the file
   * at the same time, which must not happen. With `isKilled` it kills itself while it has the file.
   */
  async race({ directory, name, isKilled }) {
    const marker = join(directory, "marker");
    const deadline = Date.now() + 200_000;
    let refused = 0;
    while (Date.now() < deadline) {
      let one;
      try {
        one = await file(directory).open(name);
      } catch (error) {
        if (error.code !== "VARVE_DATABASE_BUSY") throw error;
        refused += 1;
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 4));
        continue;
      }
      const together = existsSync(marker) ? 1 : 0;
      writeFileSync(marker, String(process.pid));
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      if (existsSync(marker)) unlinkSync(marker);
      if (isKilled) process.kill(process.pid, "SIGKILL");
      one.file.close();
      return { refused, together };
    }
    throw new Error(`never got the file, refused ${refused} times`);
  },
};

process.on("message", async ({ id, command, options }) => {
  try {
    process.send({ id, result: await commands[command](options) });
  } catch (error) {
    const { name, code, pid, message, stack } = error;
    process.send({ id, error: { name, code, pid, message, stack } });
  }
});
if (process.argv.includes("--dawdle")) delayCalls();
if (process.argv.includes("--full")) fill();
process.on("disconnect", () => process.exit());
process.send({ id: 0, result: {} });

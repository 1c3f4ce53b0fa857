// A process that opens database files when reported so by its parent. Plain JavaScript, so that it starts
// fast and many can run at a time; it uses the package as built.

import fs, { existsSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { file } from "varve";

const opened = [];

/**
 * Makes every step of taking a lock slow by chance, so that the processes meet in the middle of
 * each other's steps. Without it the windows are microseconds, and a lock without any care passes.
 */
function dawdle() {
  const clock = new Int32Array(new SharedArrayBuffer(4));
  const slow = ["openSync", "linkSync", "readlinkSync", "renameSync", "symlinkSync", "unlinkSync"];
  for (const call of slow) {
    const quick = fs[call];
    fs[call] = (...args) => {
      // Mostly short and now and then long, so that one step lasts as long as many steps of another process.
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

  /** Removes that hook. */
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
   * Tries until it has had the file once, and tells how often it met another holder while it held
   * it itself: that must be never. With `die` the process is killed while it holds the file.
   */
  async race({ directory, name, die }) {
    const witness = join(directory, "witness");
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
      const together = existsSync(witness) ? 1 : 0;
      writeFileSync(witness, String(process.pid));
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
      if (existsSync(witness)) unlinkSync(witness);
      if (die) process.kill(process.pid, "SIGKILL");
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
if (process.argv.includes("--dawdle")) dawdle();
if (process.argv.includes("--full")) fill();
process.on("disconnect", () => process.exit());
process.send({ id: 0, result: {} });

import {
  closeSync,
  fdatasyncSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { file } from "varve";
import { amountsFor, runLarge } from "./run.js";

// Runs in a separate process with temporary files; the argument "quick" selects the small amounts.
const folder = mkdtempSync(join(tmpdir(), "varve-large-"));
try {
  const result = await runLarge(
    {
      storage: file(folder),
      async raw(name, database = false) {
        const path = join(folder, database ? `${name}.varve` : name);
        const fd = openSync(path, database ? "r" : "w");
        return {
          read: (bytes, at) => readSync(fd, bytes, 0, bytes.length, at),
          write: (bytes, at) => writeSync(fd, bytes, 0, bytes.length, at),
          flush: () => fdatasyncSync(fd),
          close: () => closeSync(fd),
        };
      },
      async remove(name) {
        for (const path of [name, `${name}.varve`]) rmSync(join(folder, path), { force: true });
      },
      turn: () => setImmediate(),
      progress: (doing) => process.stderr.write(`  [large] ${doing}\n`),
    },
    amountsFor(process.argv[2] === "quick"),
  );
  process.stdout.write(JSON.stringify(result));
} finally {
  rmSync(folder, { recursive: true, force: true });
}

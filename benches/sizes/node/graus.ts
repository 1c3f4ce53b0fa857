import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Readable } from "node:stream";
import type { OpenStore } from "../store.js";
import { KEY_BYTES, VALUE_BYTES } from "../workload.js";

/** Reads exact numbers of bytes from a stream. */
class ByteReader {
  private chunks: Buffer[] = [];
  private held = 0;
  private ended = false;
  /** Resumes the read that waits for the next chunk. */
  private wake = () => {};

  constructor(stream: Readable) {
    stream.on("data", (chunk: Buffer) => {
      this.chunks.push(chunk);
      this.held += chunk.length;
      this.wake();
    });
    stream.on("end", () => {
      this.ended = true;
      this.wake();
    });
  }

  async take(count: number): Promise<Buffer> {
    while (this.held < count) {
      if (this.ended) throw new Error("graus-sizes ended early");
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
    }
    const all = this.chunks.length === 1 ? this.chunks[0]! : Buffer.concat(this.chunks);
    this.chunks = [all.subarray(count)];
    this.held -= count;
    return all.subarray(0, count);
  }
}

const HEAD = 5;
/** Keys per request when contents are compared. */
const PAGE = 10_000;

/** GrausDB runs natively in a separate process, which receives the work and reports how long it took. */
export function openGraus(root: string): OpenStore {
  const program = join(root, "target/graus/release/graus-sizes");
  return async (folder) => {
    const child = spawn(program, [join(folder, "graus")], { stdio: ["pipe", "pipe", "inherit"] });
    const answers = new ByteReader(child.stdout);
    let ns = 0;

    const send = async (
      command: string,
      keys: readonly string[],
      from: number,
      to: number,
      values?: readonly Uint8Array[],
    ) => {
      const count = to - from;
      const bytes = Buffer.alloc(HEAD + count * (KEY_BYTES + (values ? VALUE_BYTES : 0)));
      bytes.write(command, "latin1");
      bytes.writeUInt32LE(count, 1);
      for (let i = 0; i < count; i++) {
        bytes.write(keys[from + i]!, HEAD + i * KEY_BYTES, "latin1");
        if (values === undefined) continue;
        const value = values[(from + i) & (values.length - 1)]!;
        bytes.set(value, HEAD + count * KEY_BYTES + i * VALUE_BYTES);
      }
      if (!child.stdin.write(bytes)) await once(child.stdin, "drain");
    };
    const ask: typeof send = async (...request) => {
      await send(...request);
      const answer = await answers.take(16);
      ns += answer.readDoubleLE(0);
      sum = answer.readDoubleLE(8);
    };
    let sum = 0;

    return {
      name: "GrausDB",
      settings: "native, called from Rust; it has no grouping, no order and no settings",
      remarks: [
        "GrausDB: it writes each operation to the system by itself. Version 0.2.2 compacts at 1 MiB of garbage, and then copies, for each key, the rest of its log from that key on (an io::copy without a bound): at a thousand keys that fills the disk. So the benchmark writes less than that, in samples of 500, and no figure includes compaction. It has no ranges: its contents are compared key by key.",
      ],
      async gets(keys) {
        await ask("g", keys, 0, keys.length);
        return sum;
      },
      sets: (keys, values, from, to) => ask("s", keys, from, to, values),
      updates: (keys, from, to) => ask("u", keys, from, to),
      deletes: (keys, from, to) => ask("d", keys, from, to),
      async pairs(visit, possible) {
        const compare = async (page: readonly string[]) => {
          await send("p", page, 0, page.length);
          const found = await answers.take(page.length * (1 + VALUE_BYTES));
          for (const [index, key] of page.entries()) {
            const at = index * (1 + VALUE_BYTES);
            if (found[at] === 0) continue;
            visit(Buffer.from(key, "latin1"), found.subarray(at + 1, at + 1 + VALUE_BYTES));
          }
        };
        let page: string[] = [];
        for (const key of possible) {
          page.push(key);
          if (page.length < PAGE) continue;
          await compare(page);
          page = [];
        }
        if (page.length > 0) await compare(page);
      },
      elapsed() {
        const ms = ns / 1e6;
        ns = 0;
        return ms;
      },
      async close() {
        child.stdin.end();
        const [code] = await once(child, "exit");
        if (code !== 0) throw new Error(`graus-sizes ended with code ${code}`);
      },
    };
  };
}

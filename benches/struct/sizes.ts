/** The bytes that `varve/struct` adds to a bundle: minified, compressed by brotli. */

import { brotliCompressSync } from "node:zlib";
import { build } from "esbuild";
import { type Goal, goal, type Row, row } from "../report.js";

const BUNDLES = [
  { what: "all of varve/struct", uses: "*" },
  {
    what: "every type of field",
    uses:
      "{ added, array, blob, bool, bytes, enum8, enum16, f32, f64, fixedStr, flatten, i8, i16, i32, i64, " +
      "option, optNonZero, str, struct, timestamp, u8, u16, u32, u53, u64, union, vec, versioned }",
  },
  {
    what: "numbers, text and updates",
    uses: "{ bool, f64, flatten, i32, str, struct, u8, u16, u32, u53 }",
  },
  { what: "one kind of number", uses: "{ struct, u16 }" },
] as const;

/** A text that only the code of unions contains. */
const UNION = "{ type, value }";

export async function bundleSizes(root: string): Promise<{ rows: Row[]; goals: Goal[] }> {
  const rows: Row[] = [];
  let unions = 0;
  for (const { what, uses } of BUNDLES) {
    const text = await bundled(root, `export ${uses} from "./dist/struct.js";`);
    const bytes = brotliCompressSync(text).length;
    const [work, group] = [`${what}, minified`, "What it adds to a bundle"];
    rows.push({ group, ...row(work, "brotli", "", "bytes", [bytes]) });
    rows.push({ group, ...row(work, "uncompressed", "", "bytes", [text.length]) });
    if (text.includes(UNION)) unions += 1;
  }
  const all = rows[0]?.figures.median ?? Number.NaN;
  return {
    rows,
    goals: [
      goal("all of varve/struct, in brotli", all, { atMost: 6144 }, "bytes"),
      // All exports, and every type.
      goal("bundles of these four that bring unions", unions, { atMost: 2 }, ""),
    ],
  };
}

async function bundled(root: string, contents: string): Promise<string> {
  const { outputFiles } = await build({
    absWorkingDir: root,
    stdin: { contents, resolveDir: root },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    write: false,
  });
  return outputFiles[0]?.text ?? "";
}

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { context } from "../support/context.js";
import { measure, type Ratios } from "./calls.js";

const TRIES = 3;
const MOST = 2;

/** The ratios that `npm run speed` has recorded. */
const recorded = JSON.parse(
  readFileSync(join(context().root, "tests/speed/ratios.json"), "utf8"),
) as Ratios;

test("no call takes twice the recorded ratio to a Map in three measurements of three", async () => {
  let slow: string[] | undefined;
  for (let attempt = 0; attempt < TRIES && slow?.length !== 0; attempt += 1) {
    const found = await measure(context().wasm);
    expect(Object.keys(found)).toStrictEqual(Object.keys(recorded));
    const before = slow;
    slow = Object.entries(found)
      .filter(([name, ratio]) => ratio > MOST * (recorded[name] as number))
      .map(([name, ratio]) => `${name}: ${ratio.toFixed(1)} for ${recorded[name]}`)
      .filter((one) => before?.some((other) => nameOf(other) === nameOf(one)) ?? true);
  }
  expect(slow).toStrictEqual([]);
});

function nameOf(line: string): string {
  return line.slice(0, line.indexOf(":"));
}

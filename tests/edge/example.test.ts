/** The worked example: the product drop in a Durable Object. */

import { execFileSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { root } from "../packaging/project.js";

describe("the edge example", () => {
  test("exactly 20,001 pairs are sold to a hundred concurrent clients, killed by -9 in the middle", () => {
    const args = ["demo/edge/run.mjs", "--json"];
    const output = execFileSync(process.execPath, args, { cwd: root(), encoding: "utf8" });
    const { answered, orders, stock } = JSON.parse(output) as Record<string, number>;
    expect({ answered, orders, stock }).toStrictEqual({
      answered: 20_001,
      orders: 20_001,
      stock: 0,
    });
  });
});

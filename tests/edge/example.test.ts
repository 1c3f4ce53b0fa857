/** The worked example: the product drop in a Durable Object. */

import { execFileSync } from "node:child_process";
import { deepEqual, suite, test } from "../harness.js";
import { root } from "../packaging/project.js";

suite("the edge example", () => {
  test("exactly 20,001 pairs are sold to a hundred concurrent clients, killed by -9 in the middle", () => {
    const args = ["demo/edge/run.mjs", "--json"];
    const said = execFileSync(process.execPath, args, { cwd: root(), encoding: "utf8" });
    const { answered, orders, stock } = JSON.parse(said) as Record<string, number>;
    deepEqual({ answered, orders, stock }, { answered: 20_001, orders: 20_001, stock: 0 });
  });
});

/** Collections of clients whose values a schema of another library checks. */

import { standard } from "varve/standard";
import { structured } from "varve/structured";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { rejects } from "../support/errors.js";
import { shop } from "./support.js";

const User = z.object({ name: z.string(), age: z.number().default(0) });
const Draft = z.object({ at: z.date(), title: z.string().default("none") });
const collections = { users: standard(User), drafts: standard(Draft, { as: structured() }) };
const refused = {
  name: "TypeError",
  code: "VARVE_BAD_ARGUMENT",
  message: /standard\(\): \.name: /,
};

describe("Standard Schemas of clients", () => {
  for (const isUp of [false, true]) {
    test(`standard(): each write of a client is checked and gets its defaults (${isUp ? "later" : "at once"})`, async () => {
      const client = shop({ collections });
      if (isUp) await client.ready;
      const { users, drafts } = client;
      await users.set("ann", { name: "Ann" });
      expect(await users.get("ann")).toStrictEqual({ name: "Ann", age: 0 });
      expect(await users.values().all()).toStrictEqual([{ name: "Ann", age: 0 }]);
      expect(
        await users.updateIf("ann", (user) => {
          user.age += 1;
        }),
      ).toBe(true);
      await client.transaction((tx) => tx.users.set("bob", { name: "Bob", age: 5 }));
      await users.update("ann", { add: { age: 1 } });
      await users.batch([{ type: "set", key: "eve", value: { name: "Eve" } }]);
      const wrong = { name: 5 } as never;
      await rejects(users.set("bad", wrong), refused);
      await rejects(users.batch([{ type: "set", key: "bad", value: wrong }]), {
        ...refused,
        message: /\.name/,
      });
      await rejects(users.update("ann", { set: wrong }), refused);
      await rejects(
        users.updateIf("ann", () => wrong),
        refused,
      );
      await rejects(
        client.transaction((tx) => tx.users.set("bad", wrong)),
        refused,
      );
      expect(await users.entries().all()).toStrictEqual([
        ["ann", { name: "Ann", age: 2 }],
        ["bob", { name: "Bob", age: 5 }],
        ["eve", { name: "Eve", age: 0 }],
      ]);
      await drafts.set("a", { at: new Date(5) });
      expect(await drafts.get("a")).toStrictEqual({ at: new Date(5), title: "none" });
      await rejects(drafts.set("b", { at: 5 } as never), { ...refused, message: /\.at: / });
    });
  }
});

/** Collections whose values schemas of other libraries check. */

import { type } from "arktype";
import * as v from "valibot";
import { type StandardError, type StandardSchema, standard } from "varve/standard";
import { json, struct, text, u8 } from "varve/struct";
import { structured } from "varve/structured";
import { assert, expect, test } from "vitest";
import { z } from "zod";
import { rejects, throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

interface User {
  name: string;
  age: number;
  lines: { price: number }[];
}

/** The same schema of each library: a default of 0 for the age. */
const SCHEMAS: Readonly<
  Record<string, StandardSchema<Omit<User, "age"> & { age?: number | undefined }, User>>
> = {
  zod: z.object({
    name: z.string().min(1),
    age: z.number().int().default(0),
    lines: z.array(z.object({ price: z.number() })),
  }),
  valibot: v.object({
    name: v.pipe(v.string(), v.minLength(1)),
    age: v.optional(v.pipe(v.number(), v.integer()), 0),
    lines: v.array(v.object({ price: v.number() })),
  }),
  arktype: type({
    name: "string >= 1",
    age: "number.integer = 0",
    lines: type({ price: "number" }).array(),
  }),
};

everywhere("collections of Standard Schemas", ({ storage }) => {
  for (const [library, schema] of Object.entries(SCHEMAS)) {
    test(`standard(): a schema of ${library} checks every write, by path, and gives defaults`, async () => {
      const name = freshName();
      let db = await opened(storage, {}, name);
      let users = db.collection("users", standard(schema));
      users.set("ann", { name: "Ann", lines: [{ price: 1 }] });
      const ann = { name: "Ann", age: 0, lines: [{ price: 1 }] };
      expect(users.get("ann")).toStrictEqual(ann);
      const wrong: [unknown, string][] = [
        [{ name: "Bob", lines: [{ price: 1 }, { price: "2" }] }, ".lines[1].price"],
        [{ name: "", lines: [] }, ".name"],
        [{ name: "Bob", age: 1.5, lines: [] }, ".age"],
        [5, ""],
      ];
      for (const [value, field] of wrong) {
        const message = new RegExp(
          `^standard\\(\\): ${field.replace(/[[\].]/g, "\\$&") || "the value"}: .`,
        );
        const error = throws(() => users.set("bob", value as never), {
          ...BAD,
          message,
        }) as StandardError;
        expect(error.field).toBe(field);
        assert((error.issues?.length ?? 0) > 0);
        throws(() => users.updateIf("ann", () => value as never), BAD);
        throws(() => users.batch([{ type: "set", key: "bob", value: value as never }]), BAD);
        const line = `{"key":"bob","value":${JSON.stringify(value)}}`;
        await rejects(users.fromJsonLines(line), { ...BAD, message: /^Line 1: standard\(\): / });
      }
      throws(
        () =>
          users.updateIf("ann", (user) => {
            user.age = 0.5;
          }),
        BAD,
      );
      expect(
        users.updateIf("ann", (user) => {
          user.age += 1;
        }),
      ).toBe(true);
      expect(await users.fromJsonLines('{"key":"eve","value":{"name":"Eve","lines":[]}}')).toBe(1);
      db = await reopened(db, storage, name);
      users = db.collection("users", standard(schema));
      expect([...users.entries()]).toStrictEqual([
        ["ann", { ...ann, age: 1 }],
        ["eve", { name: "Eve", age: 0, lines: [] }],
      ]);
      // The file knows nothing of the schema.
      expect(db.collection("users", json<User>()).get("ann")?.age).toBe(1);
    });
  }

  test("standard(): values are stored by json(), or as asked by structured()", async () => {
    const db = await opened(storage);
    const Draft = z.object({ at: z.date(), tags: z.set(z.string()) });
    const draft = { at: new Date(5), tags: new Set(["x"]) };
    const plain = db.collection("plain", standard(Draft));
    throws(() => plain.set("a", draft), { ...BAD, message: /^json\(\): \.at is a Date/ });
    const drafts = db.collection("drafts", standard(Draft, { as: structured() }));
    drafts.set("a", draft);
    expect(drafts.get("a")?.at.getTime()).toBe(5);
    throws(() => drafts.set("b", { at: "now" } as never), {
      ...BAD,
      message: /^standard\(\): \.at: /,
    });
    const lines = await new Response(
      drafts.toJsonLines() as ReadableStream<Uint8Array<ArrayBuffer>>,
    ).text();
    expect(lines).toBe(
      '{"key":"a","value":{"at":{"$Date":"1970-01-01T00:00:00.005Z"},"tags":{"$Set":["x"]}}}\n',
    );
    expect(await drafts.fromJsonLines(lines.replace('"key":"a"', '"key":"b"'))).toBe(1);
    assert(drafts.get("b")?.tags.has("x"));
    await rejects(drafts.fromJsonLines('{"key":"c","value":{"at":5}}'), {
      ...BAD,
      message: /\.at: /,
    });
    const lossy = db.collection("lossy", standard(Draft, { as: json({ lossy: true }) }));
    lossy.set("a", draft);
    expect(lossy.get("a") as unknown).toStrictEqual({ at: "1970-01-01T00:00:00.005Z", tags: {} });
    throws(() => db.collection("drafts", standard(Draft)), { code: "VARVE_SCHEMA_MISMATCH" });
  });

  test("standard(): asynchronous schemas and what is no schema are refused", async () => {
    const db = await opened(storage);
    const later = z.object({ name: z.string().refine(async () => false) });
    const names = db.collection("names", standard(later));
    throws(() => names.set("a", { name: "a" }), { ...BAD, message: /the schema is asynchronous/ });
    expect(names.count()).toBe(0);
    for (const wrong of [
      null,
      undefined,
      {},
      { "~standard": {} },
      struct("A", { a: u8 }),
      () => 1,
    ]) {
      throws(() => standard(wrong as never), { ...BAD, message: /needs a Standard Schema/ });
    }
    throws(() => standard(later, { with: json() } as never), {
      ...BAD,
      message: /no option but as/,
    });
    for (const as of [text(), struct("A", { a: u8 }), 5, {}]) {
      throws(() => standard(later, { as } as never), {
        ...BAD,
        message: /must be json\(\) or structured/,
      });
    }
  });

  test("standard(): what a schema throws arrives, and names of any kind are in the path", async () => {
    const db = await opened(storage);
    const own: StandardSchema<unknown, unknown> = {
      "~standard": {
        version: 1,
        validate(value) {
          if (value === 1) throw new RangeError("own");
          return {
            issues: [
              { message: "no", path: ["a b", { key: 0 }, Symbol("s")] },
              { message: "more" },
            ],
          };
        },
      },
    };
    const values = db.collection("values", standard(own));
    throws(() => values.set("a", 1), { name: "RangeError", message: "own" });
    throws(() => values.set("a", 2), {
      ...BAD,
      message: 'standard(): ["a b"][0]["Symbol(s)"]: no (and 1 more)',
    });
    expect(values.count()).toBe(0);
  });
});

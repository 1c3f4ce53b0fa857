import { assert, describe, expect, test } from "vitest";
import { type ErrorPattern, rejects, throws } from "./errors.js";

const cause = new Error("the disk's");
const thrown = Object.assign(new TypeError("The key is empty.", { cause }), { code: "EMPTY" });

const MATCHING: Record<string, ErrorPattern> = {
  "no pattern": {},
  "its name": { name: "TypeError" },
  "its code": { code: "EMPTY" },
  "a part of its message": { message: "key is" },
  "an expression for its message": { message: /^The .* empty\.$/ },
  "that it has a cause": { cause: true },
  "all of these": { name: "TypeError", code: "EMPTY", message: /empty/, cause: true },
};

const OTHERS: Record<string, ErrorPattern> = {
  "another name": { name: "Error" },
  "another code": { code: "empty" },
  "a message that it does not contain": { message: "is key" },
  "an expression that its message does not match": { message: /^key/ },
  "that it has no cause": { cause: false },
  "another name and its code": { name: "RangeError", code: "EMPTY" },
};

/** Checks that a call fails with an assertion error, and returns it. */
async function failureOf(check: () => unknown): Promise<string> {
  try {
    await check();
  } catch (error) {
    expect((error as Error).name).toBe("AssertionError");
    return (error as Error).message;
  }
  return assert.fail("it did not fail");
}

function fails(): never {
  throw thrown;
}

describe("expected errors", () => {
  for (const [what, pattern] of Object.entries(MATCHING)) {
    test(`an error matches ${what}, and is returned`, async () => {
      expect(throws(fails, pattern)).toBe(thrown);
      expect(await rejects(Promise.reject(thrown), pattern)).toBe(thrown);
      expect(await rejects(async () => fails(), pattern)).toBe(thrown);
    });
  }

  for (const [what, pattern] of Object.entries(OTHERS)) {
    test(`an error does not match ${what}, and is shown`, async () => {
      const checks = [() => throws(fails, pattern), () => rejects(async () => fails(), pattern)];
      for (const check of checks) {
        const message = await failureOf(check);
        assert(message.includes("The key is empty."), message);
        assert(message.includes("the disk's"), message);
      }
    });
  }

  test("an error without a cause does not match that it has one", async () => {
    const bare = new Error("bare");
    expect(throws(() => Promise.resolve(raise(bare)), { cause: false })).toBe(bare);
    await failureOf(() => throws(() => raise(bare), { cause: true }));
  });

  test("a function that returns or resolves fails the check, which shows its result", async () => {
    const returned = await failureOf(() => throws(() => [1, 2]));
    assert(returned.endsWith("it returned [1,2]"), returned);
    const resolved = await failureOf(() => rejects(Promise.resolve("sold")));
    assert(resolved.endsWith('it resolved to "sold"'), resolved);
  });

  test("a thrown value that is no object matches no pattern", async () => {
    for (const value of ["text", 1, undefined, null]) {
      await failureOf(() => throws(() => raise(value)));
      await failureOf(() => rejects(Promise.reject(value)));
    }
  });

  test("an error of another realm matches by its shape", () => {
    const foreign = { name: "TypeError", message: "of a frame" };
    const given: unknown = throws(() => raise(foreign), { name: "TypeError", message: "frame" });
    expect(given).toBe(foreign);
  });

  test("a failed assertion within is the test's failure, whatever the pattern", async () => {
    const within = () => expect(1).toBe(2);
    for (const pattern of [{}, { name: "AssertionError" }]) {
      const message = await failureOf(() => throws(within, pattern));
      assert(message.startsWith("expected 1 to be 2"), message);
    }
  });
});

function raise(value: unknown): never {
  throw value;
}

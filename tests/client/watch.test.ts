import { json } from "varve/struct";
import { deepEqual, equal, ok, suite, test, text } from "../harness.js";
import { shop } from "./support.js";

/** Collects what a listener hears, and waits for so much of it. */
function collected<T>() {
  const heard: T[] = [];
  let wake = () => {};
  return {
    heard,
    listener(one: T): void {
      heard.push(one);
      wake();
    },
    async until(holds: () => boolean): Promise<void> {
      while (!holds()) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}

suite("a watch", () => {
  test("hears which keys of its range have changed, after the commit, whoever wrote them", async () => {
    const client = shop({
      procedures: { touch: (db) => db.batch([{ type: "set", key: "a/3", value: "3" }]) },
    });
    await client.set("a/1", "1");
    const { heard, listener, until } = collected<readonly { key: string; version: number }[]>();
    client.watch({ prefix: "a/" }, listener);
    await client.count();
    await client.batch([
      { type: "set", key: "a/2", value: "2" },
      { type: "delete", key: "a/1" },
      { type: "set", key: "b", value: "elsewhere" },
    ]);
    await until(() => heard.length === 1);
    deepEqual(
      heard[0]?.map(({ key, version }) => [key, version > 0]),
      [
        ["a/2", true],
        ["a/1", false],
      ],
    );
    await client.call.touch();
    await until(() => heard.length === 2);
    const entry = await client.getEntry("a/3");
    deepEqual(heard[1], [{ key: "a/3", version: entry?.version }]);
  });

  test("hears nothing any more when it is closed", async () => {
    const client = shop();
    const { heard, listener, until } = collected<unknown>();
    const closed: unknown[] = [];
    const watching = client.watch({}, (changes) => closed.push(changes));
    client.watch({}, listener);
    await client.count();
    watching.close();
    await client.set("a", "1");
    await until(() => heard.length === 1);
    equal(closed.length, 0);
  });

  test("of a collection hears its keys as they are", async () => {
    const client = shop({ collections: { jobs: json<{ kind: string }>() } });
    const { heard, listener, until } = collected<readonly { key: string }[]>();
    client.jobs.watch({}, listener);
    await client.count();
    await client.set("job", "raw");
    await client.jobs.set("job", { kind: "mail" });
    await until(() => heard.length > 0);
    deepEqual(
      heard[0]?.map(({ key }) => key),
      ["job"],
    );
  });
});

suite("a live range", () => {
  test("is given as it is, and after every change, and its last state is never missed", async () => {
    const client = shop();
    await client.set("n/0", "0");
    const { heard, listener, until } = collected<[string, Uint8Array][]>();
    using _ = client.live({ prefix: "n/" }, listener);
    await until(() => heard.length === 1);
    deepEqual(
      heard[0]?.map(([key, value]) => key + text(value)),
      ["n/00"],
    );
    for (let i = 1; i <= 40; i += 1) client.set(`n/${i}`, String(i));
    await until(() => heard.at(-1)?.length === 41);
    ok(heard.length <= 42);
  });
});

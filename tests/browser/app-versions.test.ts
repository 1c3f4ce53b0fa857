import { type Client, connect, destroy, open, opfs, type ServeOptions, serve } from "varve";
import { str, struct, text, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

const Old = struct("Product", { price: u16, name: str });
const New = struct("Product", { cents: u32, name: str });

/** A client of a build of the application, as in a tab of its own. */
function tab(name: string, options: ServeOptions): Client {
  const served = serve(name, { storage: opfs(), ...wasmOption(), ...options });
  const worker = () => {
    const { port1, port2 } = new MessageChannel();
    served.listen(port1);
    onTestFinished(() => port1.close());
    return port2;
  };
  const client: Client = connect(name, { worker });
  onTestFinished(() => client.close());
  return client;
}

async function fresh(name: string): Promise<string> {
  await destroy(name);
  return name;
}

function reported(client: Client, event: string): Promise<void> {
  return new Promise((resolve) => {
    client.addEventListener(event, () => resolve(), { once: true });
  });
}

describe("two builds side by side", () => {
  test("builds: the newer one takes over and migrates; the older becomes outdated, and its later calls are not done", async () => {
    const name = await fresh("builds-deploy");
    const old = tab(name, { version: 1, collections: { products: Old } });
    await old.collection("products").set("yeezy", { price: 220, name: "Boost" });
    expect(old.status.owner).toBe("here");
    const outdated = reported(old, "outdated");
    const newer = tab(name, {
      version: 2,
      collections: { products: New },
      migrate: async (db, from) => {
        expect(from).toBe(1);
        await db.migrate("products", New, {
          migrate: ({ price, name }: { price: number; name: string }) => ({
            cents: price * 100,
            name,
          }),
        });
      },
    });
    expect(await newer.collection("products").get("yeezy")).toStrictEqual({
      cents: 22_000,
      name: "Boost",
    });
    await outdated;
    expect(old.status.state).toBe("outdated");
    await rejects(old.set("late", "1"), { code: "VARVE_VERSION_CHANGED" });
    await rejects(old.get("late"), { code: "VARVE_VERSION_CHANGED" });
    expect(await newer.has("late")).toBe(false);
    expect(newer.status.owner).toBe("here");
  });

  test("builds: calls in progress when a newer one arrives are done once, or refused and not done", async () => {
    const name = await fresh("builds-under-way");
    const old = tab(name, { version: 1 });
    // After the first answer, calls are sent at once.
    await old.set("before", "1");
    const asked: Promise<"done" | "refused">[] = [];
    const add = (i: number) =>
      old.set(`key/${i}`, "1").then(
        () => "done" as const,
        (error: { code?: string }) => {
          expect(error.code).toBe("VARVE_VERSION_CHANGED");
          return "refused" as const;
        },
      );
    for (let i = 0; i < 20; i += 1) asked.push(add(i));
    const newer = tab(name, { version: 2 });
    const over = reported(old, "outdated").then(() => true);
    for (let i = 20; !(await Promise.race([over, pause()])); i += 1) asked.push(add(i));
    const ends = await Promise.all(asked);
    const there = new Set(await newer.keys().all());
    ends.forEach((end, i) => {
      expect(there.has(`key/${i}`), `key/${i} was ${end}`).toBe(end === "done");
    });
    assert(ends.includes("done"));
  });

  test("builds: an older one that is opened later becomes outdated too, also without an open newer tab", async () => {
    const name = await fresh("builds-later");
    const newer = tab(name, { version: 7 });
    await newer.set("a", "1");
    const old = tab(name, { version: 6 });
    await rejects(old.get("a"), { code: "VARVE_VERSION_CHANGED" });
    await newer.close();
    const alone = tab(name, { version: 6 });
    const outdated = reported(alone, "outdated");
    await rejects(alone.get("a"), { code: "VARVE_VERSION_CHANGED" });
    await outdated;
    const again = tab(name, { version: 7 });
    expect(await again.getText("a")).toBe("1");
  });

  test("builds: tabs of the same version never replace each other's owner", async () => {
    const name = await fresh("builds-same");
    const tabs = [1, 2, 3].map(() => tab(name, { version: 3, collections: { products: New } }));
    let outdated = 0;
    for (const one of tabs) one.addEventListener("outdated", () => (outdated += 1));
    await Promise.all(tabs.map((one, i) => one.set(`tab/${i}`, "1")));
    const owners = tabs.filter(({ status }) => status.owner === "here");
    expect(owners.length).toBe(1);
    expect(await tabs[0]?.count()).toBe(3);
    expect(outdated).toBe(0);
  });

  test("builds: the same version with other schemas is refused with the difference", async () => {
    const name = await fresh("builds-differ");
    const one = tab(name, { version: 1, collections: { products: Old, notes: text() } });
    await one.set("a", "1");
    const other = tab(name, { version: 1, collections: { products: New } });
    const error = await rejects(other.set("a", "2"), { code: "VARVE_SCHEMA_MISMATCH" });
    assert(
      /cents/.test(String(error)) && /"notes" is unexpected/.test(String(error)),
      String(error),
    );
    expect(await one.getText("a")).toBe("1");
  });

  test("builds: a failed migration rejects every call, and is tried again", async () => {
    const name = await fresh("builds-failing");
    const old = tab(name, { version: 1 });
    await old.set("a", "1");
    await old.close();
    let tries = 0;
    const newer = tab(name, {
      version: 2,
      migrate: (db) => {
        tries += 1;
        if (tries === 1) throw new RangeError("not yet");
        db.set("a", "2");
      },
    });
    await rejects(newer.get("a"), { name: "RangeError" });
    expect(await newer.getText("a")).toBe("2");
    expect(tries).toBe(2);
    await newer.close();
    const db = await open(name, wasmOption());
    expect(db.getText("a")).toBe("2");
    await db.close();
  });
});

function pause(): Promise<false> {
  return new Promise((resolve) => setTimeout(() => resolve(false), 1));
}

/** The properties of clients that frameworks, consoles, assertions and `await` look for. */

import { connect } from "varve";
import type { ToOwner } from "varve/protocol";
import { json } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { throws } from "../support/errors.js";
import { shop } from "./support.js";

/** Properties read on any object: by languages, Vue, React, MobX, Immer, Jest, vitest, chai, DOMs. */
const ASKED = [
  ..."then toJSON nodeType nodeName tagName parentNode ownerDocument host asymmetricMatch".split(
    " ",
  ),
  ..."$$typeof _isMockFunction @@__IMMUTABLE_ITERABLE__@@ @@__IMMUTABLE_RECORD__@@ jquery length".split(
    " ",
  ),
  ..."__v_raw __v_skip __v_isRef __v_isReactive __v_isReadonly __ob__ inspect size splice props".split(
    " ",
  ),
  Symbol.iterator,
  Symbol.asyncIterator,
  Symbol.toPrimitive,
  Symbol.for("nodejs.util.promisify.custom"),
  Symbol.for("immer-draftable"),
];

/** Clients and their parts, whose worker does not answer, and the calls that it received. */
function looked() {
  const { port1, port2 } = new MessageChannel();
  const asked: string[] = [];
  port1.onmessage = ({ data }) => asked.push((data as ToOwner | { type: "init" }).type);
  const collections = { products: json(), orders: json() };
  const client = connect("shop", { worker: () => port2, timeout: 20, collections });
  onTestFinished(async () => {
    await client.close();
    port1.close();
  });
  return { client, asked };
}

describe("properties of a client", () => {
  test("client: it lacks the properties that are read on any object, with or without declared collections", async () => {
    const { client, asked } = looked();
    const products = client.collection("products");
    const { call } = client;
    for (const thing of [client, products, call, products.index, shop()] as object[]) {
      for (const name of ASKED) {
        // The client cannot know the names of procedures and indexes, but excludes these.
        const isByName = thing === call || thing === products.index;
        if (
          isByName &&
          !/^(then|toJSON|nodeType|tagName|asymm.*|\$\$.*|[_@]{2}.*)$/.test(String(name))
        ) {
          assert(!(name in thing), String(name));
          continue;
        }
        expect(Reflect.get(thing, name), String(name)).toBe(undefined);
        assert(!(name in thing), String(name));
      }
    }
    expect(Object.keys(client)).toStrictEqual(["products", "orders"]);
    expect(Object.keys(shop())).toStrictEqual([]);
    expect(JSON.stringify(client)).toBe(
      '{"products":{"name":"products"},"orders":{"name":"orders"}}',
    );
    expect(JSON.stringify([client.call, products.index, shop()])).toBe("[{},{},{}]");
    expect(await client).toBe(client);
    expect(await products).toBe(products);
    expect({ ...call }).toStrictEqual({});
    // None of these reads has sent a call.
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(asked.filter((type) => type === "requests").length).toBe(0);
  });

  test("client: each collection exists once, by its name", async () => {
    const client = shop({ collections: { products: json<number>() } });
    expect(client.products).toBe(client.collection("products"));
    await client.collection("products").set("a", 1);
    await client.transaction(async (tx) => {
      expect(await tx.products.get("a")).toBe(1);
      tx.collection("products").set("a", 2);
      expect("orders" in tx).toBe(false);
      expect(Reflect.get(tx, "then")).toBe(undefined);
    });
    expect(await client.products.get("a")).toBe(2);
  });

  test("client: names of its methods are refused as declared collections, and work with collection()", async () => {
    for (const name of ["get", "close", "status", "constructor", "addEventListener"]) {
      throws(() => connect("shop", { collections: { [name]: json() } }), {
        code: "VARVE_BAD_ARGUMENT",
        message: `collection("${name}")`,
      });
    }
    throws(() => connect("shop", { collections: 5 as never }), { code: "VARVE_BAD_ARGUMENT" });
    const client = shop();
    expect((client as { collection(name: string): { name: string } }).collection("get").name).toBe(
      "get",
    );
  });
});

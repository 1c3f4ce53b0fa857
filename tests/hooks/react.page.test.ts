/** `varve/react` on a page, with React's development build, whose Strict Mode mounts everything twice. */

import {
  Component,
  createElement as h,
  memo,
  type ReactNode,
  StrictMode,
  Suspense,
  startTransition,
  useState,
} from "react";
import { flushSync } from "react-dom";
import { createRoot, hydrateRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { type RangeResult, useRange, useStatus, useValue } from "varve/react";
import { assert, expect, onTestFinished, test } from "vitest";
import { turn, until } from "../support/values.js";
import { counted, everySource, fill, key, rename, type Shop } from "./support.js";

type Products = Shop["products"];

/** An element of the page, which React renders into. */
function place() {
  const element = document.createElement("div");
  document.body.append(element);
  const root = createRoot(element, { onUncaughtError: () => {}, onCaughtError: () => {} });
  onTestFinished(() => {
    root.unmount();
    element.remove();
  });
  return { element, root, shows: (text: string) => until(() => element.textContent === text) };
}

/** Shows the error of what is in it. */
class Boundary extends Component<{ children: ReactNode }, { error: Error | undefined }> {
  override state = { error: undefined as Error | undefined };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    return error === undefined ? this.props.children : `failed: ${error.name}`;
  }
}

function Name({ of, id, suspense }: { of: Products; id: string | undefined; suspense?: boolean }) {
  const { value, isPending, error } = useValue(of, id, { suspense });
  if (error !== undefined) return `error: ${(error as Error).name}`;
  return isPending ? "pending" : (value?.name ?? "none");
}

everySource("React", (make) => {
  test("Strict Mode: everything is followed once, and ends a second after the unmount", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const { root, shows } = place();
    root.render(h(StrictMode, null, h(Name, { of: source, id: key(1) })));
    await shows("product 1");
    await rename(shop, 1, "changed");
    await shows("changed");
    expect(counts).toStrictEqual({ begun: 1, open: 1 });
    root.render(null);
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 1, open: 0 });
  });

  test("a component that is mounted again shows what it showed, and follows no second time", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const { root, shows, element } = place();
    const seen: (string | null)[] = [];
    const observer = new MutationObserver(() => seen.push(element.textContent));
    root.render(h(Name, { of: source, id: key(1), key: "one" }));
    await shows("product 1");
    observer.observe(element, { childList: true, characterData: true, subtree: true });
    root.render(h(Name, { of: source, id: key(1), key: "two" }));
    await turn(50);
    root.render(null);
    await turn(100);
    root.render(h(Name, { of: source, id: key(1) }));
    await shows("product 1");
    observer.disconnect();
    assert(!seen.includes("pending"), seen.join());
    expect(counts).toStrictEqual({ begun: 1, open: 1 });
  });

  test("another key is pending and then known; equal keys and ranges follow no second time", async () => {
    const shop = await make();
    await fill(shop, 5);
    const { counts, source } = counted(shop.products);
    const { root, shows } = place();
    let set: (from: number) => void = () => {};
    const shown: string[] = [];
    const List = () => {
      const [from, setFrom] = useState(1);
      set = setFrom;
      const { rows, isPending } = useRange(source, { gte: key(from), limit: 2 });
      const text = isPending ? "pending" : rows.map(([name]) => name).join();
      shown.push(`${from}: ${text}`);
      return text;
    };
    root.render(h(List));
    await shows("p0001,p0002");
    root.render(h(List));
    await turn(20);
    expect(counts.begun).toBe(1);
    set(3);
    await shows("p0003,p0004");
    expect(counts.begun).toBe(2);
    assert(!shown.includes("3: p0001,p0002"), "no rows of another range");
  });

  test("of 1,000 rows in which one changes, one is rendered", async () => {
    const shop = await make();
    await fill(shop, 1_000);
    const { root, element } = place();
    const rendered: string[] = [];
    const Row = memo(({ id, product }: { id: string; product: { name: string } }) => {
      rendered.push(id);
      return h("li", null, product.name);
    });
    const List = () => {
      const { rows } = useRange(shop.products, {});
      return rows.map(([id, product]) => h(Row, { key: id, id, product }));
    };
    root.render(h(List));
    await until(() => element.childElementCount === 1_000);
    expect(rendered.length).toBe(1_000);
    await rename(shop, 500, "changed");
    await until(() => element.children[500]?.textContent === "changed");
    expect(rendered.slice(1_000)).toStrictEqual([key(500)]);
  });

  test("a condition is the one of the last render, and is written inline", async () => {
    const shop = await make();
    await fill(shop, 10);
    const { counts, source } = counted(shop.products);
    const { root, shows } = place();
    let set: (from: number) => void = () => {};
    let renders = 0;
    const List = () => {
      const [least, setLeast] = useState(8);
      set = setLeast;
      renders += 1;
      const { rows } = useRange(source, { where: ({ stock }) => stock >= least });
      return rows.map(([name]) => name).join();
    };
    root.render(h(List));
    await shows("p0008,p0009");
    set(7);
    await shows("p0007,p0008,p0009");
    const before = renders;
    await rename(shop, 1, "not among them");
    await turn(100);
    expect([renders, counts.begun]).toStrictEqual([before, 1]);
  });

  test("with suspense it shows the fallback and then the record; in a transition what was there stays", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const { root, shows, element } = place();
    let set: (id: string) => void = () => {};
    const first = new Set<string>();
    const Wait = () => {
      first.add("wait");
      return "wait";
    };
    const Chosen = () => {
      const [id, setId] = useState(key(1));
      set = setId;
      return h(Name, { of: source, id, suspense: true });
    };
    root.render(h(StrictMode, null, h(Suspense, { fallback: h(Wait) }, h(Chosen))));
    await shows("product 1");
    expect(first.has("wait")).toBe(true);
    expect(counts.begun).toBe(1);
    const seen: (string | null)[] = [];
    const observer = new MutationObserver(() => seen.push(element.textContent));
    observer.observe(element, { childList: true, characterData: true, subtree: true });
    startTransition(() => set(key(2)));
    await shows("product 2");
    observer.disconnect();
    assert(!seen.some((text) => text?.includes("wait")), seen.join());
    await rename(shop, 2, "changed");
    await shows("changed");
    root.render(null);
    await turn(1_300);
    expect(counts.open).toBe(0);
  });

  test("another source is pending and then known, and the first one ends", async () => {
    const [first, second] = [await make(), await make()];
    await fill(first, 2);
    await rename(second, 1, "of the second");
    const [one, two] = [counted(first.products), counted(second.products)];
    const { root, shows } = place();
    const shown: unknown[] = [];
    const List = ({ of }: { of: Products }) => {
      const { rows, isPending } = useRange(of, { gte: key(1), where: () => true });
      const text = isPending ? "pending" : rows.map(([, { name }]) => name).join();
      shown.push([of === one.source, text]);
      return text;
    };
    for (const of of [one.source, two.source, one.source]) {
      root.render(h(StrictMode, null, h(List, { of })));
      await shows(of === one.source ? "product 1" : "of the second");
    }
    assert(
      !shown.some((one) => `${one}` === "true,of the second" || `${one}` === "false,product 1"),
    );
    await turn(1_300);
    expect([one.counts, two.counts]).toStrictEqual([
      { begun: 1, open: 1 },
      { begun: 1, open: 0 },
    ]);
  });

  test("a component that is unmounted before the first result leaves nothing, suspended or not", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const { root, element } = place();
    for (const suspense of [false, true]) {
      const name = h(Name, { of: source, id: key(1), suspense });
      flushSync(() => root.render(h(StrictMode, null, h(Suspense, { fallback: "…" }, name))));
      assert(element.textContent !== "product 1");
      flushSync(() => root.render(null));
      await turn(1_300);
      expect(counts.open).toBe(0);
    }
  });

  test("an error is in the result or, with suspense, at the boundary", async () => {
    const shop = await make();
    const bad = 5 as unknown as string;
    const [one, two] = [place(), place()];
    one.root.render(h(Boundary, null, h(Name, { of: shop.products, id: bad })));
    two.root.render(
      h(Boundary, null, h(Suspense, null, h(Name, { of: shop.products, id: bad, suspense: true }))),
    );
    await one.shows("error: TypeError");
    await two.shows("failed: TypeError");
  });

  test("what a condition throws is at the boundary", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { root, shows } = place();
    const where = () => {
      throw new RangeError("thrown by a condition");
    };
    const List = () => useRange(shop.products, { where }).rows.length;
    root.render(h(Boundary, null, h(List)));
    await shows("failed: RangeError");
  });

  test("what a server rendered is hydrated without a difference, and then followed", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const Page = () =>
      h("p", null, h(Name, { of: source, id: key(1) }), h("b", null, useStatus(shop.to).state));
    // The page's store has a result already, which the server had not.
    const { root, shows } = place();
    root.render(h(Name, { of: source, id: key(1) }));
    await shows("product 1");
    const element = document.createElement("div");
    element.innerHTML = renderToString(h(Page));
    expect(element.textContent).toBe("pendingidle");
    const errors: unknown[] = [];
    const hydrated = hydrateRoot(element, h(Page), {
      onRecoverableError: (error) => errors.push(error),
    });
    onTestFinished(() => hydrated.unmount());
    await until(() => element.textContent === "product 1open");
    expect(errors).toStrictEqual([]);
    expect(counts.begun).toBe(1);
  });

  test("without a key nothing is followed and nothing suspends", async () => {
    const shop = await make();
    const { counts, source } = counted(shop.products);
    const { root, shows } = place();
    root.render(h(Name, { of: source, id: undefined, suspense: true }));
    await shows("pending");
    expect(counts.begun).toBe(0);
  });

  test("two components of a range show it in one state, and its rows are typed", async () => {
    const shop = await make();
    await fill(shop, 4);
    const { root, shows } = place();
    const seen = new Set<string>();
    const Part = ({ of }: { of: RangeResult<string, { stock: number; name: string }> }) =>
      h("b", null, of.rows.filter(([, { stock }]) => stock > 1).length);
    const First = () => h(Part, { of: useRange(shop.products, { gte: key(0) }) });
    const Both = () => {
      const one = useRange(shop.products, { gte: key(0) });
      const other = useRange(shop.products, { gte: key(0) });
      if (one !== other) seen.add("different");
      return h("i", null, h(Part, { of: one }), h(First));
    };
    root.render(h(Both));
    await shows("22");
    await rename(shop, 0, "more", 9);
    await shows("33");
    expect([...seen]).toStrictEqual([]);
  });
});

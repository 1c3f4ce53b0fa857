/** `varve/solid` on a page. */

import { createRoot, createSignal, ErrorBoundary, For } from "solid-js";
import h from "solid-js/h";
import { render } from "solid-js/web";
import { useRange, useStatus, useValue } from "varve/solid";
import { expect, onTestFinished, test } from "vitest";
import { turn, until } from "../support/values.js";
import { counted, everySource, fill, key, rename } from "./support.js";

/** What a component makes, on the page. */
function mounted(component: () => unknown) {
  const element = document.createElement("div");
  document.body.append(element);
  const end = render(component as () => Element, element);
  onTestFinished(() => {
    end();
    element.remove();
  });
  return { element, end, shows: (text: string) => until(() => element.textContent === text) };
}

everySource("Solid", (make) => {
  test("a value of a key in a signal is followed until its owner is disposed", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const [id, setId] = createSignal<string>();
    const { end, element, shows } = mounted(() => {
      const product = useValue(source, id);
      return () => (product().isPending ? "pending" : (product().value?.name ?? "none"));
    });
    expect(element.textContent).toBe("pending");
    await turn(20);
    expect(counts.begun).toBe(0);
    setId(key(1));
    await shows("product 1");
    await rename(shop, 1, "changed");
    await shows("changed");
    setId(key(2));
    expect(element.textContent).toBe("pending");
    await shows("product 2");
    expect(counts.begun).toBe(2);
    end();
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 2, open: 0 });
  });

  test("of 1,000 rows in which one changes, the elements of the others stay", async () => {
    const shop = await make();
    await fill(shop, 1_000);
    let made = 0;
    const { element } = mounted(() => {
      const list = useRange(shop.products);
      const row = ([, product]: readonly [string, { name: string }]) => {
        made += 1;
        return h("li", product.name)();
      };
      return h(For, { each: () => list().rows }, row as never);
    });
    await until(() => element.childElementCount === 1_000);
    expect(made).toBe(1_000);
    const before = [...element.children];
    await rename(shop, 500, "changed");
    await until(() => element.children[500]?.textContent === "changed");
    const changed = [...element.children].flatMap((one, i) => (one === before[i] ? [] : [i]));
    expect(changed).toStrictEqual([500]);
    expect(made).toBe(1_001);
  });

  test("a range and what its condition reads are tracked; the status is followed", async () => {
    const shop = await make();
    await fill(shop, 10);
    const { counts, source } = counted(shop.products);
    const [from, setFrom] = createSignal(5);
    const [least, setLeast] = createSignal(8);
    const { shows } = mounted(() => {
      const list = useRange(source, () => ({
        gte: key(from()),
        where: ({ stock }) => stock >= least(),
      }));
      const status = useStatus(shop.to);
      return () => [status().state, ...list().rows.map(([id]) => id)].join();
    });
    await shows("open,p0008,p0009");
    setLeast(7);
    await shows("open,p0007,p0008,p0009");
    expect(counts.begun).toBe(1);
    setFrom(9);
    await shows("open,p0009");
    expect(counts.begun).toBe(2);
  });

  test("an error is in the result, and what a condition throws is at the boundary", async () => {
    const shop = await make();
    await fill(shop, 3);
    createRoot((dispose) => {
      const bad = useRange(shop.products, { limit: -1 });
      onTestFinished(dispose);
      return until(() => (bad().error as Error | undefined)?.name === "TypeError");
    });
    const where = () => {
      throw new RangeError("thrown by a condition");
    };
    const fallback = (error: Error) => `failed: ${error.name}`;
    const { shows } = mounted(() =>
      h(ErrorBoundary, { fallback }, () => {
        const list = useRange(shop.products, { where });
        return () => list().rows.length;
      }),
    );
    await shows("failed: RangeError");
  });
});

/** `varve/vue` on a page. */

import { useRange, useStatus, useValue } from "varve/vue";
import { expect, onTestFinished, test } from "vitest";
import { type Component, createApp, defineComponent, effectScope, h, ref, shallowRef } from "vue";
import { turn, until } from "../support/values.js";
import { counted, everySource, fill, key, rename } from "./support.js";

/** A component that is mounted on the page. */
function mounted(component: Component) {
  const element = document.createElement("div");
  document.body.append(element);
  const app = createApp(component);
  app.mount(element);
  onTestFinished(() => {
    app.unmount();
    element.remove();
  });
  return { element, app, shows: (text: string) => until(() => element.textContent === text) };
}

everySource("Vue", (make) => {
  test("a value of a key in a ref is followed until the component is unmounted", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const id = ref<string>();
    const { app, element, shows } = mounted({
      setup() {
        const product = useValue(source, id);
        return () => (product.value.isPending ? "pending" : (product.value.value?.name ?? "none"));
      },
    });
    expect(element.textContent).toBe("pending");
    await turn(20);
    expect(counts.begun).toBe(0);
    id.value = key(1);
    await shows("product 1");
    await rename(shop, 1, "changed");
    await shows("changed");
    id.value = key(2);
    await shows("product 2");
    expect(counts.begun).toBe(2);
    app.unmount();
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 2, open: 0 });
  });

  test("of 1,000 rows in which one changes, one is rendered", async () => {
    const shop = await make();
    await fill(shop, 1_000);
    const rendered: string[] = [];
    const Row = defineComponent({
      props: { id: { type: String, required: true }, product: { type: Object, required: true } },
      setup: (props) => () => {
        rendered.push(props.id);
        return h("li", props.product.name);
      },
    });
    const { element } = mounted({
      setup() {
        const list = useRange(shop.products);
        const row = ([id, product]: readonly [string, object]) => h(Row, { key: id, id, product });
        return () => list.value.rows.map(row);
      },
    });
    await until(() => element.childElementCount === 1_000);
    expect(rendered.length).toBe(1_000);
    await rename(shop, 500, "changed");
    await until(() => element.children[500]?.textContent === "changed");
    expect(rendered.slice(1_000)).toStrictEqual([key(500)]);
  });

  test("a range and what its condition reads are tracked", async () => {
    const shop = await make();
    await fill(shop, 10);
    const { counts, source } = counted(shop.products);
    const [from, least, of] = [ref(5), ref(8), shallowRef<typeof source>()];
    const { shows } = mounted({
      setup() {
        const list = useRange(of, () => ({
          gte: key(from.value),
          where: ({ stock }) => stock >= least.value,
        }));
        return () => list.value.rows.map(([id]) => id).join();
      },
    });
    of.value = source;
    await shows("p0008,p0009");
    least.value = 7;
    await shows("p0007,p0008,p0009");
    expect(counts.begun).toBe(1);
    from.value = 9;
    await shows("p0009");
    expect(counts.begun).toBe(2);
  });

  test("within an effect scope that is no component it begins at once, and ends with the scope", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const scope = effectScope();
    const [product, status] = scope.run(() => [
      useValue(source, () => key(1)),
      useStatus(shop.to),
    ]) as [ReturnType<typeof useValue<typeof source>>, ReturnType<typeof useStatus>];
    await until(() => product.value.value?.name === "product 1");
    expect(status.value.state).toBe("open");
    scope.stop();
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 1, open: 0 });
  });

  test("an error is in the result", async () => {
    const shop = await make();
    const { shows } = mounted({
      setup() {
        const list = useRange(shop.products, { limit: -1 });
        return () => (list.value.error as Error | undefined)?.name ?? "";
      },
    });
    await shows("TypeError");
  });
});

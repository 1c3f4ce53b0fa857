import { connect } from "varve/client";

const db = connect<typeof import("./db").default>("todo", {
  worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }),
});
const todos = db.collection("todos");

const form = document.querySelector("form") as HTMLFormElement;
const input = document.querySelector("#title") as HTMLInputElement;
const list = document.querySelector("ul") as HTMLUListElement;
const left = document.querySelector("#left") as HTMLElement;
const clear = document.querySelector("#clear") as HTMLButtonElement;
const problem = document.querySelector("#problem") as HTMLElement;

/** Shows why a call failed, until one succeeds. */
async function attempt(call: Promise<unknown>): Promise<void> {
  try {
    await call;
    problem.textContent = "";
  } catch (error) {
    problem.textContent = (error as Error).message;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const title = input.value.trim();
  if (title === "") return;
  input.value = "";
  void attempt(todos.push({ done: false, title }));
});

clear.addEventListener("click", () => void attempt(db.call.clearDone()));

// Called now, and after each change in this tab or any other.
todos.live({}, (rows) => {
  const focused = (document.activeElement as HTMLElement | null)?.id;
  list.replaceChildren(...rows.map(([id, todo]) => row(id, todo)));
  if (focused) document.getElementById(focused)?.focus();
  const open = rows.filter(([, todo]) => !todo.done).length;
  left.textContent = `${open} of ${rows.length} left`;
  clear.disabled = open === rows.length;
});

function row(id: number, { done, title }: { done: boolean; title: string }): HTMLLIElement {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.id = `todo-${id}`;
  box.checked = done;
  box.addEventListener("change", () => {
    void attempt(todos.update(id, { set: { done: box.checked } }));
  });
  const label = document.createElement("label");
  label.append(box, title);
  const item = document.createElement("li");
  item.append(label);
  return item;
}

/** A crash in the middle of writes. */
export function mount(root: HTMLElement): void {
  root.textContent = "";
}

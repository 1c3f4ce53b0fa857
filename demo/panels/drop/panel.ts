/** The product drop in any number of tabs. */
export function mount(root: HTMLElement): void {
  root.textContent = "";
}

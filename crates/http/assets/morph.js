// @ts-check
// Makes an element equal to another with the fewest changes, so that focus, selection, scroll positions, open details
// and typed text stay. Elements are recognised by `id` or `data-key`; a subtree with `data-keep` is left alone.

/**
 * @param {Node} node
 * @returns {string} the name by which a node is recognised among its siblings; empty if it has none
 */
function keyOf(node) {
  return node instanceof Element ? node.id || node.getAttribute('data-key') || '' : '';
}

/**
 * @param {Element} from
 * @param {Element} to
 */
function morphAttributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // The viewer opened the details, and the script chose the row.
    const isOfViewer = name === 'open' || name === 'tabindex' || (name === 'hidden' && from.classList.contains('script'));
    if (!to.hasAttribute(name) && !isOfViewer) from.removeAttribute(name);
  }
}

/**
 * @param {Element} from
 * @param {Element} to
 */
function morphChildren(from, to) {
  /** @type {Map<string, ChildNode>} */
  const known = new Map();
  for (const child of from.childNodes) {
    const key = keyOf(child);
    if (key) known.set(key, child);
  }
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const key = keyOf(wanted);
    let match = key ? known.get(key) : undefined;
    if (!key) {
      match = at && !keyOf(at) && at.nodeName === wanted.nodeName ? at : undefined;
    }
    if (!match || match.nodeName !== wanted.nodeName) {
      from.insertBefore(document.importNode(wanted, true), at);
      continue;
    }
    known.delete(key);
    if (match === at) at = at.nextSibling;
    else from.insertBefore(match, at);
    morph(match, wanted);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/**
 * Makes `from` equal to `to`.
 * @param {Node} from
 * @param {Node} to
 */
export function morph(from, to) {
  if (from.isEqualNode(to)) return;
  if (!(from instanceof Element) || !(to instanceof Element)) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.hasAttribute('data-keep')) return;
  morphAttributes(from, to);
  morphChildren(from, to);
}

// Shows the values under the pointer; without it everything else is there.
for (const svg of document.querySelectorAll('svg[data-x]')) {
  const [low, high, left, right] = svg.dataset.x.split(' ').map(Number);
  const lines = [...svg.querySelectorAll('path[data-p]')].map(p =>
    ({name: p.dataset.n, at: p.dataset.p.split(' ').map(Number)}));
  const cursor = svg.querySelector('.cursor'), box = svg.closest('figure').querySelector('.values');
  svg.addEventListener('pointermove', e => {
    const x = new DOMPoint(e.clientX, e.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const step = low + (Math.min(Math.max(x, left), right) - left) / (right - left) * (high - low);
    const near = lines.map(({name, at}) => {
      let best = 0;
      for (let i = 0; i < at.length; i += 2)
        if (Math.abs(at[i] - step) < Math.abs(at[best] - step)) best = i;
      return {name, step: at[best], value: at[best + 1]};
    }).filter(n => n.value !== undefined);
    if (!near.length) return;
    const place = left + (near[0].step - low) / (high - low) * (right - left);
    cursor.setAttribute('x1', place);
    cursor.setAttribute('x2', place);
    cursor.style.visibility = 'visible';
    box.textContent = near.map(n => `${n.name}  ${n.value}  at step ${n.step}`).join('\n');
    box.style.display = 'block';
    const share = place / svg.viewBox.baseVal.width * 100;
    box.style.left = share < 50 ? `calc(${share}% + 12px)` : 'auto';
    box.style.right = share < 50 ? 'auto' : `calc(${100 - share}% + 12px)`;
  });
  svg.addEventListener('pointerleave', () => {
    cursor.style.visibility = 'hidden';
    box.style.display = 'none';
  });
}

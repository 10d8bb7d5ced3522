#pragma once
#include <string_view>

namespace triax::parallel::report {

/// How a page looks. The colors of runs are those of Okabe and Ito ("Color universal design",
/// 2002) without yellow, which is none on white, and lighter on dark pages; from the ninth run on
/// lines are dashed.
inline constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--grey:#59636e;--line:#d1d9e0;--grid:#e7ebef;
--f:#8cc0f5;--b:#93d6a3;--w:#f7cf79;--idle:#e9ecef;--r0:#0072b2;--r1:#d55e00;--r2:#009e73;--r3:#cc79a7;
--r4:#e69f00;--r5:#56b4e9;--r6:#24292f;--r7:#6a51a3}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--grey:#9198a1;--line:#3d444d;
--grid:#232930;--f:#1f6fb5;--b:#2b7f46;--w:#94691a;--idle:#272e36;--r0:#4da6e0;--r1:#f0803c;--r2:#2fc494;
--r3:#e39cc5;--r4:#f5b83d;--r5:#9ad4f5;--r6:#f0f3f6;--r7:#a78bda}}
body{font:15px/1.45 system-ui,'Segoe UI',Helvetica,Arial,sans-serif;background:var(--paper);color:var(--ink);
max-width:1160px;margin:0 auto;padding:8px 20px 40px}
h1{font-size:24px;margin:16px 0 4px}h2{font-size:19px;margin:36px 0 8px}
h3{font-size:15px;margin:0 0 2px}h3 small,p small,.quiet{color:var(--grey);font-weight:400}
.legend{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:2px 22px;background:var(--paper);
padding:8px 0;border-bottom:1px solid var(--line)}
.legend span{display:inline-flex;align-items:center;gap:7px;overflow-wrap:anywhere}
.legend svg{width:26px;height:12px;flex:none}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:26px 28px;margin-top:20px}
figure{margin:0;position:relative;min-width:0}figure.wide{grid-column:1/-1}
.scroll{overflow-x:auto}.scroll>svg{min-width:700px}
figure>svg,.scroll>svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:var(--ink)}
svg .x,svg .y{fill:var(--grey)}svg .x,svg .m{text-anchor:middle}svg .y{text-anchor:end}
.grid{stroke:var(--grid)}.axis{stroke:var(--line)}.cursor{stroke:var(--grey);visibility:hidden}
svg path{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}
svg path.pale{stroke-width:1;opacity:.32}svg path.held{stroke-width:1.4;stroke-dasharray:2 4}
svg circle{stroke-width:1.8;fill:var(--paper)}svg path.skipped{stroke:none}
.f{fill:var(--f)}.b{fill:var(--b)}.w{fill:var(--w)}.idle{fill:var(--idle)}
.values{position:absolute;top:30px;pointer-events:none;display:none;background:var(--paper);font-size:13px;
border:1px solid var(--line);border-radius:5px;padding:3px 9px;white-space:pre;z-index:1}
table{border-collapse:collapse;font-size:14px}
td,th{padding:3px 14px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid)}
thead th{color:var(--grey);font-weight:400}tbody th{font-weight:400;color:var(--grey)}
td{overflow-wrap:break-word;min-width:84px;max-width:340px;font-variant-numeric:tabular-nums}td.n,th.n{text-align:right}
.ranks th{white-space:nowrap}td .bar{width:340px;height:13px;display:block;margin-top:3px}
.key{display:flex;flex-wrap:wrap;gap:2px 20px;font-size:13px;color:var(--grey);margin:6px 0}
.key svg{width:13px;height:12px;vertical-align:-1px;margin-right:6px}
summary{cursor:pointer;margin:10px 0}
.settings{columns:340px}.settings .scroll{overflow:visible}tr{break-inside:avoid}
.charts figure,table{margin-bottom:4px}.key+figure{margin-top:22px}
)css";

/// Shows the values under the pointer; without it everything else is there.
inline constexpr std::string_view script = R"js(
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
)js";

}  // namespace triax::parallel::report

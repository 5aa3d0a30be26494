import matplotlib.pyplot as plt
label = columns[0]
value = next(c for c in columns[1:] if rows[0][c].replace(".", "", 1).isdigit())
plt.figure(figsize=(6, 3))
plt.bar([r[label] for r in rows], [float(r[value]) for r in rows], color="#2f6f6a")
plt.title(f"{value} by {label}")
plt.tight_layout()
plt.show()

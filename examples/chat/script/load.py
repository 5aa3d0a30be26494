import csv, glob
name = max(glob.glob("*.csv"))
rows = list(csv.DictReader(open(name)))
columns = list(rows[0])
print(f"{name}: {len(rows)} rows, columns {', '.join(columns)}")
rows[:3]

import time
found = []
for n in range(2, 200):
    if all(n % p for p in found):
        found.append(n)
        print(n, end=" ", flush=True)
        time.sleep(0.25)
len(found)
